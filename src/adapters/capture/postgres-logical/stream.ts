import pg from "pg";
import type { LogEvents } from "../../../ports/capture.ts";
import type { Clock } from "../../../time/clock.ts";
import { parseServerMessage, statusUpdate, wireOf } from "./connection.ts";
import { type Names, slotFault } from "./faults.ts";

interface StreamOptions {
  /** A replication connection that runs nothing. The caller closes it. */
  readonly client: pg.Client;
  readonly names: Names;
  readonly partitioned: boolean;
  /** Where to begin; the server begins later when the slot has been confirmed further. */
  readonly start: bigint;
  readonly events: Pick<LogEvents, "following" | "inserted">;
  /** Called with the position before which everything was seen. */
  readonly onReached: (position: bigint) => void;
  readonly clock: Clock;
}

/**
 * Streams the log of a slot until the signal aborts.
 *
 * The server may discard its log up to the confirmed position. That position also advances without inserts: the server
 * reports how far it has read, which counts as seen between transactions. So it never retains log of other tables and
 * databases.
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

  /** Requests a reply from the server, which also shows how far it has read. */
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

/**
 * Reads just enough of `pgoutput`'s messages to detect that a transaction inserted into one table (PostgreSQL
 * documentation, "Logical Replication Message Formats", protocol version 1). Row contents are skipped.
 */

interface Commit {
  /** Position after the transaction. */
  readonly end: bigint;
  /** The server's wall clock, ms since the epoch. */
  readonly committedAt: number;
  /** Whether it inserted into the table. */
  readonly inserted: boolean;
}

export class TransactionReader {
  readonly #isOurs: (schema: string, table: string) => boolean;
  /** The server describes a relation before its first row, and again when it changed. */
  readonly #ours = new Set<number>();
  #inserted = false;
  #open = false;

  /** @param isOurs whether inserts into this table count */
  constructor(isOurs: (schema: string, table: string) => boolean) {
    this.#isOurs = isOurs;
  }

  /** True between a transaction's begin and its commit. */
  get inTransaction(): boolean {
    return this.#open;
  }

  /** @returns the commit, when the message is one */
  read(message: Buffer): Commit | undefined {
    switch (message[0]) {
      case BEGIN:
        this.#open = true;
        this.#inserted = false;
        return undefined;
      case RELATION:
        this.#describe(message);
        return undefined;
      case INSERT:
        if (this.#ours.has(message.readUInt32BE(1))) this.#inserted = true;
        return undefined;
      case COMMIT:
        this.#open = false;
        return {
          end: message.readBigUInt64BE(10),
          committedAt: epochMs(message.readBigInt64BE(18)),
          inserted: this.#inserted,
        };
      default:
        return undefined;
    }
  }

  #describe(message: Buffer): void {
    const id = message.readUInt32BE(1);
    const schemaEnd = message.indexOf(0, 5);
    const schema = message.toString("utf8", 5, schemaEnd);
    const table = message.toString("utf8", schemaEnd + 1, message.indexOf(0, schemaEnd + 1));
    if (this.#isOurs(schema, table)) this.#ours.add(id);
    else this.#ours.delete(id);
  }
}

const BEGIN = 0x42; // B
const COMMIT = 0x43; // C
const INSERT = 0x49; // I
const RELATION = 0x52; // R

/** The server counts its time in microseconds from 2000-01-01. */
const EPOCH_2000_MS = Date.UTC(2000, 0, 1);

function epochMs(microseconds: bigint): number {
  return Number(microseconds / 1000n) + EPOCH_2000_MS;
}

/** Positions in the write-ahead log, in bytes (PostgreSQL documentation, "pg_lsn Type"). */

/**
 * @param text such as `16/B374D848`
 * @returns undefined for anything else
 */
export function parseLsn(text: string): bigint | undefined {
  const match = /^([0-9A-F]{1,8})\/([0-9A-F]{1,8})$/i.exec(text);
  return match === null ? undefined : (BigInt(`0x${match[1]}`) << 32n) | BigInt(`0x${match[2]}`);
}

export function formatLsn(lsn: bigint): string {
  const half = (bits: bigint) => bits.toString(16).toUpperCase();
  return `${half(lsn >> 32n)}/${half(lsn & 0xffff_ffffn)}`;
}
