/**
 * Reads as much of `pgoutput`'s messages as tells that a transaction inserted into one table (PostgreSQL documentation, "Logical Replication
 * Message Formats", protocol version 1). Row contents are passed over unread.
 */

export interface Commit {
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
