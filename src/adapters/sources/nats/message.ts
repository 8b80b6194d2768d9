import type { Msg } from "nats";
import type { Headers } from "../../../model/rows.ts";
import type { BrokerMessage } from "../../../ports/source.ts";
import { headerText } from "../../brokers/headerText.ts";
import { streamPlace } from "./buffer.ts";

/** The fallback identity of a message without a key. */
type IdempotencyFrom = "body" | "sequence";

/** Headers by which a stream marks the deletion of a subject's message (NATS ADR-8, ADR-43). */
const DELETION_HEADERS = ["KV-Operation", "Nats-Marker-Reason"] as const;

/**
 * Converts a message of a stream for the intake.
 *
 * A deletion marker has no body, like Kafka's tombstone. All markers look alike, so its position identifies it. The
 * position includes the time, since a recreated stream counts from 1 again.
 *
 * @param idempotencyFrom of the source
 */
export function brokerMessageOf(message: Msg, idempotencyFrom: IdempotencyFrom): BrokerMessage {
  const { data, subject, reply = "" } = message;
  const headers = messageHeaders(message);
  const { stream, sequence, storedAtNs } = streamPlace(reply);
  const storedAtMs = Number(storedAtNs) / 1_000_000;
  const isDeletion = data.length === 0 && DELETION_HEADERS.some((name) => name in headers);
  return {
    body: isDeletion ? null : Buffer.from(data.buffer, data.byteOffset, data.byteLength),
    headers,
    origin: {
      "x-nats-subject": subject,
      "x-nats-stream": stream,
      "x-nats-sequence": sequence,
      "x-nats-timestamp": headerText(new Date(storedAtMs)),
    },
    publishedAt: Math.floor(storedAtMs),
    streamPlace: isDeletion || idempotencyFrom === "sequence" ? `${stream}:${sequence}:${storedAtNs}` : undefined,
  };
}

/**
 * The wire data in the client's message. The client's own parser drops all headers when one name is not ASCII, and
 * replaces every byte that is not UTF-8 with the same character: two idempotency keys could become one, and the second
 * message would be lost as a duplicate.
 */
interface WireMessage {
  /** Header block, if any, then body. */
  readonly _rdata: Uint8Array;
  /** `hdr`: length of the header block in bytes, -1 without one. */
  readonly _msg: { readonly hdr: number };
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the ASCII characters
const ASCII = /^[\x00-\x7f]*$/;
/** Only these: a byte of a UTF-8 character may look like another blank. */
const BLANKS_AROUND = /^[ \t]+|[ \t]+$/g;

/**
 * The headers of a message (NATS ADR-4), names as received. Repeated names are joined with a comma and a blank; bytes
 * that are not UTF-8 become base64.
 */
function messageHeaders(message: Msg): Headers {
  const { _rdata: bytes, _msg } = message as unknown as WireMessage;
  if (_msg.hdr <= 0) return {};
  const headers = new Map<string, string>();
  const block = Buffer.from(bytes.buffer, bytes.byteOffset, _msg.hdr).toString("latin1");
  for (const line of block.split("\r\n").slice(1)) {
    const colon = line.indexOf(":");
    if (colon < 1) continue;
    const name = textOf(line.slice(0, colon));
    const value = textOf(line.slice(colon + 1).replace(BLANKS_AROUND, ""));
    const former = headers.get(name);
    headers.set(name, former === undefined ? value : `${former}, ${value}`);
  }
  return Object.fromEntries(headers);
}

/** @param latin1 one character per byte */
function textOf(latin1: string): string {
  return ASCII.test(latin1) ? latin1 : (headerText(Buffer.from(latin1, "latin1")) ?? "");
}
