import pg from "pg";
import type { LogEvents } from "../../../ports/capture.ts";
import type { Clock } from "../../../time/clock.ts";
import { wireOf } from "./connection.ts";
import { type Names, slotFault } from "./faults.ts";
import { formatLsn } from "./lsn.ts";
import { TransactionReader } from "./pgoutput.ts";
import { parseServerMessage, statusUpdate } from "./replication.ts";

export interface StreamOptions {
  /** A replication connection that runs nothing. The caller closes it. */
  readonly client: pg.Client;
  readonly names: Names;
  readonly partitioned: boolean;
  /** Where to begin; the server begins later when the slot has been confirmed further. */
  readonly start: bigint;
  readonly events: Pick<LogEvents, "following" | "inserted">;
  /** Told of the position before which everything was seen. */
  readonly onReached: (position: bigint) => void;
  readonly clock: Clock;
}

/**
 * Streams the log of a slot until the signal aborts.
 *
 * The server may let go of its log up to the position that is confirmed. That position also moves when nobody inserts: the server reports
 * how far it has read, which counts as seen when no transaction is half told. So log of other tables and other databases is never held back.
 *
 * @throws Error when the stream ends or the server falls silent
 */
export async function streamChanges(options: StreamOptions, signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  const stream = new ChangeStream(options);
  const abort = () => stream.end();
  signal.addEventListener("abort", abort, { once: true });
  try {
    await stream.run();
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

class ChangeStream {
  readonly #options: StreamOptions;
  readonly #reader: TransactionReader;
  /** 0 until something was seen: the server takes it for no position. */
  #seen = 0n;
  #unanswered = 0;
  #watch: NodeJS.Timeout | undefined;
  #confirmSoon: NodeJS.Timeout | undefined;
  #finish: (error?: Error) => void = () => {};

  constructor(options: StreamOptions) {
    const { names, partitioned } = options;
    this.#options = options;
    this.#reader = new TransactionReader(
      (schema, table) => partitioned || (schema === names.schema && table === names.table),
    );
  }

  async run(): Promise<void> {
    const { client, names, start, events } = this.#options;
    const finished = new Promise<void>((resolve, reject) => {
      this.#finish = (error) => (error === undefined ? resolve() : reject(error));
    });
    const wire = wireOf(client);
    wire.on("copyData", ({ chunk }) => this.#receive(chunk));
    wire.once("replicationStart", () => {
      this.#watch = setInterval(() => this.#ask(), ASK_INTERVAL_MS);
      events.following();
    });
    const publication = pg.escapeLiteral(pg.escapeIdentifier(names.publication));
    client
      .query(
        `START_REPLICATION SLOT ${pg.escapeIdentifier(names.slot)} LOGICAL ${formatLsn(start)} (proto_version '1', publication_names ${publication})`,
      )
      .then(
        () => this.#finish(new Error("the server ended the stream: it shuts down")),
        (error: unknown) => this.#finish(slotFault(error, names)),
      );
    try {
      await finished;
    } finally {
      clearInterval(this.#watch);
      clearTimeout(this.#confirmSoon);
    }
  }

  /** Ends the stream from our side; what was seen is confirmed. */
  end(): void {
    if (this.#watch !== undefined) this.#confirm(false);
    this.#finish();
  }

  #receive(chunk: Buffer): void {
    this.#unanswered = 0;
    try {
      this.#take(chunk);
    } catch (error) {
      // Thrown into the driver it would end the process.
      this.#finish(new Error("the server sent a message that cannot be read", { cause: error }));
    }
  }

  #take(chunk: Buffer): void {
    const message = parseServerMessage(chunk);
    if (message === undefined) return;
    if (message.kind === "data") {
      const commit = this.#reader.read(message.body);
      if (commit === undefined) return;
      this.#reached(commit.end);
      if (commit.inserted) this.#options.events.inserted(commit.committedAt);
      return;
    }
    if (!this.#reader.inTransaction) this.#reached(message.walEnd);
    if (message.replyRequested) this.#confirm(false);
  }

  #reached(position: bigint): void {
    if (position <= this.#seen) return;
    this.#seen = position;
    this.#options.onReached(position);
    this.#confirmSoon ??= setTimeout(() => this.#confirm(false), CONFIRM_INTERVAL_MS);
  }

  #confirm(requestReply: boolean): void {
    clearTimeout(this.#confirmSoon);
    this.#confirmSoon = undefined;
    wireOf(this.#options.client).sendCopyFromChunk(statusUpdate(this.#seen, this.#options.clock.now(), requestReply));
  }

  /** Asks the server for a sign of life, which also tells how far it has read. */
  #ask(): void {
    if (this.#unanswered >= MOST_UNANSWERED) {
      const seconds = (MOST_UNANSWERED * ASK_INTERVAL_MS) / 1000;
      this.#finish(new Error(`the server has not answered for ${seconds} s: the connection is cut off, or it hangs`));
      return;
    }
    // Counted, not timed: a process that was paused finds the answers waiting.
    this.#unanswered += 1;
    this.#confirm(true);
  }
}

const CONFIRM_INTERVAL_MS = 1000;
const ASK_INTERVAL_MS = 5000;
const MOST_UNANSWERED = 3;
