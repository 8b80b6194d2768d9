import { relayDeath } from "../../model/rows.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log } from "../../ports/runtime.ts";
import type { InboxStore, RelayRules, UnrelayedRows } from "../../ports/store.ts";
import type { Clock } from "../../time/clock.ts";

/**
 * Received headers that are not forwarded: they describe the old connection or the framing of the old body (RFC 9110,
 * sections 7.6 and 12), or the relay writes them itself. A `content-type` is forwarded only when it names JSON.
 */
export const CONNECTION_HEADERS: RelayRules["droppedHeaders"] = {
  names: `
    connection content-encoding content-length date expect forwarded host http2-settings keep-alive max-forwards
    origin priority proxy-connection range referer te trailer transfer-encoding upgrade upgrade-insecure-requests
    user-agent via x-real-ip x-correlation-id x-inbox-id x-source x-idempotency-key x-message-id x-delivery-id
  `
    .trim()
    .split(/\s+/),
  prefixes: ["accept", "if-", "sec-", "x-forwarded-"],
};

interface RelayOptions {
  readonly store: InboxStore;
  readonly rules: RelayRules;
  /** Most rows of one pass (`inbox.relay.batchSize`). */
  readonly batchSize: number;
  readonly onRelayed: () => void;
  /** Called for each row that becomes dead. */
  readonly onDead: (source: string) => void;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly log: Log;
}

/** Copies pending push rows of the inbox into the outbox, pass by pass (spec, "What the service does", 3). */
export class Relay {
  readonly #options: RelayOptions;
  /** Sources of the last warning about unrelayed rows, and when it may be repeated, in ms of the monotonic clock. */
  #warnedOf = "";
  #warnAgainAt = 0;

  constructor(options: RelayOptions) {
    this.#options = options;
  }

  async pass(): Promise<"again" | "idle"> {
    const { store, rules, batchSize, metrics, log, clock } = this.#options;
    const startedAt = clock.monotonic();
    const result = await store.relay({ ...rules, limit: batchSize }).catch((error: unknown) => {
      metrics.inboxRelayError();
      throw error;
    });
    if (result.relayed > 0) {
      metrics.inboxMessages("forwarded", result.relayed);
      metrics.claimRows("relay", result.relayed);
      metrics.claimDuration("relay", (clock.monotonic() - startedAt) / 1000);
      this.#options.onRelayed();
    }
    for (const { id, source, reason } of result.refused ?? []) {
      metrics.inboxRelayError();
      log.error(
        { id, source, reason },
        "the database refuses to update this inbox row: it stays pending and blocks its aggregate",
      );
    }
    for (const { id, source, reason } of result.dead) {
      metrics.inboxDead(relayDeath(reason) ?? "outbox_refused");
      this.#options.onDead(source);
      log.warn({ id, source, reason }, "inbox row is dead");
    }
    // Rows held by another replica do not justify another pass at once.
    return result.more && result.relayed + result.dead.length > 0 ? "again" : "idle";
  }

  /** Reads the gauges of the inbox, apart from the passes: what waits while they fail must show. @throws StoreError */
  async gauge(): Promise<void> {
    const { store, rules, metrics } = this.#options;
    const sources = Object.keys(rules.topics);
    metrics.inboxOldestPendingAge(((await store.oldestPendingAgeMs(sources)) ?? 0) / 1000);
    const unrelayed = await store.unrelayed(sources, UNRELAYED_LIMIT);
    metrics.inboxUnrelayed(unrelayed.reduce((sum, { count }) => sum + count, 0));
    this.#warnOf(unrelayed);
  }

  /** Logs when the sources change, and each hour while rows remain. */
  #warnOf(unrelayed: readonly UnrelayedRows[]): void {
    const { clock, log } = this.#options;
    const sources = JSON.stringify(unrelayed.map(({ source }) => source));
    if (sources === this.#warnedOf && clock.monotonic() < this.#warnAgainAt) return;
    this.#warnedOf = sources;
    this.#warnAgainAt = clock.monotonic() + WARN_INTERVAL_MS;
    if (unrelayed.length === 0) return;
    log.warn(
      { rows: Object.fromEntries(unrelayed.map(({ source, count }) => [source, count])) },
      "pending push rows of sources that this configuration does not relay: configure each source with consumption push, or set its rows to dead",
    );
  }
}

/** Most pending rows read for one count. */
const UNRELAYED_LIMIT = 10_000;
const WARN_INTERVAL_MS = 3_600_000;
