import { createRequire } from "node:module";

const internals = createRequire(import.meta.url);

/** Changes kafkajs 2.2.4, which is pinned, in this process. Call it once. */
export function patchClient(): void {
  quietRequestQueue();
  leanEncoder();
}

interface RequestQueue {
  readonly pending: readonly unknown[];
  scheduleCheckPendingRequests(): void;
}

/**
 * Keeps kafkajs 2.2.4 from checking every millisecond, on each connection, for requests that wait when none does. The
 * timer of that check has a negative delay, which newer versions of Node report on stderr (TimeoutNegativeWarning).
 */
function quietRequestQueue(): void {
  const queue: RequestQueue = internals("kafkajs/src/network/requestQueue").prototype;
  const schedule = queue.scheduleCheckPendingRequests;
  queue.scheduleCheckPendingRequests = function () {
    if (this.pending.length > 0) schedule.call(this);
  };
}

interface Encoder {
  buf: Buffer;
  offset: number;
  ensureAvailable(length: number): void;
  writeUVarInt(value: number): Encoder;
  writeVarInt(value: number): Encoder;
  writeVarLong(value: unknown): Encoder;
}

interface EncoderClass {
  readonly prototype: Encoder;
  nextPowerOfTwo(value: number): number;
  sizeOfVarInt(value: number): number;
  sizeOfVarLong(value: unknown): number;
}

/** The size that kafkajs 2.2.4 begins an encoder with unless told. */
const USUAL_BYTES = 511;
/** Enough for a header. The engine keeps a buffer of up to 64 bytes in its own heap. */
const FEW_BYTES = 64;
/** Bytes of a 32-bit integer of variable length. */
const LONGEST_VAR_INT = 5;

/**
 * Keeps kafkajs 2.2.4 from zeroing 512 bytes for each record and each of its headers, and the space in which they grow,
 * and from a buffer or a big integer for each number in a record. The bytes on the wire are the same.
 */
function leanEncoder(): void {
  const encoder: EncoderClass = internals("kafkajs/src/protocol/encoder");
  const { nextPowerOfTwo, sizeOfVarLong } = encoder;
  const { writeVarLong } = encoder.prototype;
  encoder.nextPowerOfTwo = (bytes) => (bytes === USUAL_BYTES ? FEW_BYTES : nextPowerOfTwo(bytes));
  encoder.sizeOfVarLong = (value) => (isSmall(value) ? encoder.sizeOfVarInt(value) : sizeOfVarLong(value));
  encoder.prototype.writeVarLong = function (value) {
    return isSmall(value) ? this.writeVarInt(value) : writeVarLong.call(this, value);
  };
  encoder.prototype.writeUVarInt = function (value) {
    this.ensureAvailable(LONGEST_VAR_INT);
    let rest = value >>> 0;
    for (; rest > 0x7f; rest >>>= 7) this.buf[this.offset++] = (rest & 0x7f) | 0x80;
    this.buf[this.offset++] = rest;
    return this;
  };
  encoder.prototype.ensureAvailable = function (length) {
    const needed = this.offset + length;
    if (needed <= this.buf.length) return;
    // What lies behind the offset is never sent.
    const larger = Buffer.allocUnsafe(nextPowerOfTwo(needed));
    this.buf.copy(larger, 0, 0, this.offset);
    this.buf = larger;
  };
}

/** Below this a number is the same as a variable-length integer of 32 bits and of 64. */
function isSmall(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && Math.abs(value) < 2 ** 30;
}
