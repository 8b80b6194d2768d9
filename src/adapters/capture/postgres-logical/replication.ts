/** The messages of streaming replication (PostgreSQL documentation, "Streaming Replication Protocol"). */

export type ServerMessage =
  | { readonly kind: "data"; readonly body: Buffer }
  | { readonly kind: "keepalive"; readonly walEnd: bigint; readonly replyRequested: boolean };

/** @returns undefined for a message of a kind that is not known */
export function parseServerMessage(chunk: Buffer): ServerMessage | undefined {
  switch (chunk[0]) {
    case XLOG_DATA:
      return { kind: "data", body: chunk.subarray(XLOG_DATA_HEADER_BYTES) };
    case KEEPALIVE:
      return { kind: "keepalive", walEnd: chunk.readBigUInt64BE(1), replyRequested: chunk[17] === 1 };
    default:
      return undefined;
  }
}

/**
 * A standby status update.
 *
 * @param position everything before it was seen, and the server may let go of it
 * @param now wall clock, ms since the epoch
 * @param requestReply whether the server is to answer at once
 */
export function statusUpdate(position: bigint, now: number, requestReply: boolean): Buffer {
  const message = Buffer.alloc(34);
  message[0] = STATUS_UPDATE;
  // Received, kept and applied are one thing to somebody who stores nothing.
  for (const offset of [1, 9, 17]) message.writeBigUInt64BE(position, offset);
  message.writeBigInt64BE(BigInt(Math.round((now - Date.UTC(2000, 0, 1)) * 1000)), 25);
  message[33] = requestReply ? 1 : 0;
  return message;
}

const XLOG_DATA = 0x77; // w
/** Kind, start, end and time. */
const XLOG_DATA_HEADER_BYTES = 25;
const KEEPALIVE = 0x6b; // k
const STATUS_UPDATE = 0x72; // r
