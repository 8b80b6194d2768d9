import { CONNECTION_HEADERS, Relay } from "../src/core/delivery/relay.ts";
import { compileRouting } from "../src/core/delivery/routing.ts";
import { topicParts } from "../src/core/delivery/template.ts";
import type { RelayRules } from "../src/ports/store.ts";
import { Loop, logFailures } from "../src/runtime/loop.ts";
import type { RoleContext, RoleParts } from "./context.ts";
import { knowLists } from "./poller.ts";

/** Role `relay`: copies pending push rows into the outbox. */
export function relayRole({
  config,
  store,
  clock,
  log,
  metrics,
  wakes,
  receipts,
  fleet,
  tally,
}: RoleContext): RoleParts {
  const { relay: settings } = config.inbox;
  if (!settings.enabled) return {};
  const pushed = Object.entries(config.sources).filter(([, source]) => source.consumption === "push");
  const routing = compileRouting(config.routes);
  const startedAt = clock.monotonic();
  const rules: RelayRules = {
    topics: Object.fromEntries(pushed.map(([name, { topic }]) => [name, topicParts(topic, name)])),
    ownKeySources: pushed.filter(([, { keyScope }]) => keyScope === "source").map(([name]) => name),
    routing,
    mayExpand: (topic) => !routing.isConditional(topic) && knowLists(fleet, clock.monotonic() - startedAt),
    maxAttempts: settings.maxAttempts,
    droppedHeaders: CONNECTION_HEADERS,
  };
  receipts.relay = rules;
  const relay = new Relay({
    store: store.inbox,
    rules,
    batchSize: settings.batchSize,
    onRelayed: () => wakes.wake("poller"),
    onDead: (source) => tally.count("source", source, "dead", 1),
    clock,
    metrics,
    log,
  });
  const { pollIntervalMs } = settings;
  const loop = new Loop({
    name: "inbox-relay",
    pass: () => relay.pass(),
    intervalMs: () => relayIntervalMs(pollIntervalMs, fleet.others.relays),
    maxRestMs: MAX_REST_MS,
    staleAfterMs: pollIntervalMs + STALE_AFTER_MS,
    onError: logFailures(log, "relay pass failed"),
    clock,
  });
  const gaugeIntervalMs = Math.max(settings.pendingGaugeIntervalMs, pollIntervalMs);
  const gauges = new Loop({
    name: "inbox-gauges",
    pass: () => relay.gauge(),
    intervalMs: gaugeIntervalMs,
    staleAfterMs: gaugeIntervalMs + STALE_AFTER_MS,
    onError: logFailures(log, "reading the inbox gauges failed"),
    clock,
  });
  wakes.listen("relay", () => loop.wake());
  return {
    workers: [loop, gauges],
    health: [{ name: "inbox-relay", decidesReadiness: true, check: () => loop.check() }],
  };
}

/**
 * The wait between two passes: receipts wake their own relay, so many relays together look as often as a few.
 *
 * @param others relays of other processes
 */
export function relayIntervalMs(pollIntervalMs: number, others: number): number {
  return Math.max(pollIntervalMs, Math.min((pollIntervalMs * (others + 1)) / FEW, LONGEST_REST_MS));
}

/** Relays that each look at the poll interval. */
const FEW = 4;
/** Killed relays count for another minute; even so, a relay looks at least this often. In ms. */
const LONGEST_REST_MS = 1600;
/** A pass over 300 rows costs hardly twice as much as one over 30, so passes rest in between. */
const MAX_REST_MS = 50;
/** A pass that takes this long is stuck. */
const STALE_AFTER_MS = 30_000;
