import type pg from "pg";
import type { SlotStatus } from "../../../model/capture.ts";
import { errorText } from "../../../model/errors.ts";
import type { Metrics } from "../../../ports/metrics.ts";
import type { Log } from "../../../ports/runtime.ts";
import { connect, disconnect, type ServerAddress } from "./connection.ts";
import { Misconfigured, type Names } from "./faults.ts";
import { checkServer, readSlot, type Slot } from "./slot.ts";

export interface SlotWatchOptions {
  readonly server: ServerAddress;
  readonly names: Names;
  readonly metrics: Pick<Metrics, "replicationSlotLag" | "replicationSlotStatus">;
  readonly log: Log;
  /** Told when the slot, the publication or the server no longer is what the stream needs, which a stream need not notice. */
  readonly onFault: (fault: Misconfigured) => void;
  /** Hangs up when it aborts. */
  readonly signal: AbortSignal;
}

/** Looks at the slot from time to time, over a connection beside the stream: a slot that falls behind fills the server's disk. */
export class SlotWatch {
  readonly #options: SlotWatchOptions;
  #client: pg.Client | undefined;
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> = Promise.resolve();
  #last: SlotStatus | null = null;
  #closed = false;

  constructor(options: SlotWatchOptions) {
    this.#options = options;
  }

  /**
   * The connection, which is open until `close`.
   *
   * @throws Error that says what to do
   */
  async open(): Promise<pg.Client> {
    this.#client ??= await connect(this.#options.server, "queries", this.#options.signal);
    return this.#client;
  }

  /** Begins to look. */
  start(): void {
    this.#timer = setInterval(() => {
      this.#looking = this.#looking.then(() => this.#look());
    }, LOOK_INTERVAL_MS);
  }

  /** Takes what is known of the slot into the metrics, and warns of log that is about to go. */
  note(slot: Slot): void {
    const { metrics, log, names } = this.#options;
    metrics.replicationSlotLag(slot.retained, slot.unconfirmed);
    if (slot.status === null) return;
    metrics.replicationSlotStatus(slot.status);
    if (slot.status === "unreserved" && this.#last !== "unreserved") {
      log.warn(
        { slot: names.slot, retainedBytes: slot.retained },
        "the replication slot is past max_slot_wal_keep_size: the next checkpoint may take the log that it needs",
      );
    }
    this.#last = slot.status;
  }

  /** Ends the looks and the connection. */
  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#timer);
    if (this.#client !== undefined) await disconnect(this.#client);
    await this.#looking;
  }

  async #look(): Promise<void> {
    if (this.#closed) return;
    const { server, names, onFault, log } = this.#options;
    try {
      const client = await this.open();
      await checkServer(client, names, server.endpoints[0]?.host ?? "");
      const slot = await readSlot(client, names);
      if (slot !== undefined) this.note(slot);
    } catch (error) {
      if (error instanceof Misconfigured) return onFault(error);
      // The stream has its own watch; without a look only the figures stand still.
      log.debug({ reason: errorText(error) }, "replication slot not looked at");
      const broken = this.#client;
      this.#client = undefined;
      if (broken !== undefined) await disconnect(broken);
    }
  }
}

const LOOK_INTERVAL_MS = 10_000;
