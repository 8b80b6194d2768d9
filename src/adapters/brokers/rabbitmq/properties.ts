import { isUtf8 } from "node:buffer";
import { errorText } from "../../../model/errors.ts";

/** Deeper values are dropped: a table in thousands of tables must not exhaust the stack. */
const MAX_DEPTH = 100;

/** A message's properties as the client library names and types them, except `headers`: see {@link readProperties}. */
type Properties = Readonly<Record<string, unknown>>;

/** Properties of class `basic` in the order of their flags, from the highest bit down (AMQP 0-9-1, section 1.8.3). */
const PROPERTIES: readonly (readonly [string, (reader: Reader) => unknown])[] = [
  ["contentType", (reader) => reader.shortText()],
  ["contentEncoding", (reader) => reader.shortText()],
  ["headers", (reader) => table(reader, 0)],
  ["deliveryMode", (reader) => reader.octet()],
  ["priority", (reader) => reader.octet()],
  ["correlationId", (reader) => reader.shortText()],
  ["replyTo", (reader) => reader.shortText()],
  ["expiration", (reader) => reader.shortText()],
  ["messageId", (reader) => reader.shortText()],
  ["timestamp", (reader) => Number(reader.bytes(8).readBigUInt64BE())],
  ["type", (reader) => reader.shortText()],
  ["userId", (reader) => reader.shortText()],
  ["appId", (reader) => reader.shortText()],
  ["clusterId", (reader) => reader.shortText()],
];

/**
 * Reads the property list of a message. Text that is not UTF-8 becomes base64, so that different texts stay different;
 * an integer beyond a number's precision becomes a bigint, a time in the headers a date, a decimal its text; too deep
 * nesting becomes null.
 *
 * @throws Error when they violate AMQP
 */
export function readProperties(bytes: Buffer): Properties {
  const reader = new Reader(bytes);
  const flags = (reader.octet() << 8) | reader.octet();
  const properties: Record<string, unknown> = {};
  PROPERTIES.forEach(([name, read], n) => {
    if ((flags & (0x8000 >> n)) !== 0) properties[name] = read(reader);
  });
  return properties;
}

function table(reader: Reader, depth: number): object | null {
  const fields = items(reader, depth, (part): [string, unknown] => [part.shortText(), value(part, depth)]);
  // A field may be called __proto__, and an assignment would set the prototype.
  return fields && Object.fromEntries(fields);
}

/** The items of a table or list; null when it lies too deep. */
function items<T>(reader: Reader, depth: number, read: (part: Reader) => T): T[] | null {
  const part = reader.part();
  if (depth > MAX_DEPTH) return null;
  const found: T[] = [];
  while (part.hasMore) found.push(read(part));
  return found;
}

/** Values by their type (AMQP 0-9-1, section 4.2.5.5, with the types as RabbitMQ uses them). */
const VALUES = new Map<string, (reader: Reader, depth: number) => unknown>([
  ["S", (reader) => reader.text(reader.length())],
  ["x", (reader) => reader.bytes(reader.length())],
  ["F", (reader, depth) => table(reader, depth + 1)],
  ["A", (reader, depth) => items(reader, depth + 1, (part) => value(part, depth + 1))],
  ["t", (reader) => reader.octet() !== 0],
  ["b", (reader) => reader.bytes(1).readInt8()],
  ["B", (reader) => reader.octet()],
  ["s", (reader) => reader.bytes(2).readInt16BE()],
  ["u", (reader) => reader.bytes(2).readUInt16BE()],
  ["I", (reader) => reader.bytes(4).readInt32BE()],
  ["i", (reader) => reader.bytes(4).readUInt32BE()],
  ["l", (reader) => exact(reader.bytes(8).readBigInt64BE())],
  ["f", (reader) => reader.bytes(4).readFloatBE()],
  ["d", (reader) => reader.bytes(8).readDoubleBE()],
  ["D", (reader) => decimalText(reader.octet(), reader.length())],
  ["T", (reader) => timeOf(Number(reader.bytes(8).readBigUInt64BE()))],
  ["V", () => null],
]);

function value(reader: Reader, depth: number): unknown {
  const type = String.fromCharCode(reader.octet());
  const read = VALUES.get(type);
  if (read === undefined) throw new Error(`a value has the unknown type ${JSON.stringify(type)}`);
  return read(reader, depth);
}

/** Seconds since 1970 (AMQP 0-9-1, section 4.2.5.4) as a date; the number itself beyond the range of dates. */
export function timeOf(seconds: number): Date | number {
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? seconds : date;
}

function decimalText(places: number, digits: number): string {
  const text = String(digits).padStart(places + 1, "0");
  return places === 0 ? text : `${text.slice(0, -places)}.${text.slice(-places)}`;
}

function exact(integer: bigint): number | bigint {
  const number = Number(integer);
  return Number.isSafeInteger(number) ? number : integer;
}

const REPLACEMENT = "\ufffd";

/** Reads values from the front of a buffer. Every method throws an Error at its end. */
class Reader {
  readonly #buffer: Buffer;
  #offset = 0;

  constructor(buffer: Buffer) {
    this.#buffer = buffer;
  }

  get hasMore(): boolean {
    return this.#offset < this.#buffer.length;
  }

  octet(): number {
    return this.#buffer[this.#take(1)] as number;
  }

  /** A four-byte length. */
  length(): number {
    return this.#buffer.readUInt32BE(this.#take(4));
  }

  bytes(length: number): Buffer {
    const from = this.#take(length);
    return this.#buffer.subarray(from, from + length);
  }

  /** A part with its length before it, such as a table. */
  part(): Reader {
    return new Reader(this.bytes(this.length()));
  }

  text(length: number): string {
    const from = this.#take(length);
    const text = this.#buffer.toString("utf8", from, from + length);
    if (!text.includes(REPLACEMENT)) return text;
    const bytes = this.#buffer.subarray(from, from + length);
    return isUtf8(bytes) ? text : bytes.toString("base64");
  }

  /** A text with a one-byte length before it. */
  shortText(): string {
    return this.text(this.octet());
  }

  #take(length: number): number {
    const from = this.#offset;
    this.#offset = from + length;
    if (this.#offset > this.#buffer.length) throw new Error("a value is longer than what it is part of");
    return from;
  }
}

export interface UndecodableProperties {
  readonly undecodable: { readonly reason: string; readonly bytes: Buffer };
}

/** How amqplib 2.3 reads frames: each call returns the next one; `rest` begins with it once it is complete. */
interface FrameReader {
  rest: Buffer;
  recvFrame(): unknown;
}

/** Frame type, channel and size before the payload, one byte after it (AMQP 0-9-1, section 4.2.3). */
const PREFIX_BYTES = 7;
const HEADER_FRAME = 2;
const FRAME_END = 0xce;
/** Class, weight and body size before the properties. */
const HEADER_PREFIX_BYTES = 12;

/**
 * Reads the properties of messages for the client library, which takes properties it cannot read (tables in thousands
 * of tables, an unknown type) for a connection fault: the broker would redeliver the message on each new connection,
 * for ever. Here it arrives with {@link UndecodableProperties}. Does nothing for a library with another structure.
 */
export function readContentHeaders(connection: unknown): void {
  const reader = connection as FrameReader;
  const { recvFrame } = reader;
  if (typeof recvFrame !== "function" || !Buffer.isBuffer(reader.rest)) return;
  reader.recvFrame = () => {
    const { rest } = reader;
    if (rest.length <= PREFIX_BYTES || rest[0] !== HEADER_FRAME) return recvFrame.call(reader);
    const end = PREFIX_BYTES + rest.readUInt32BE(3);
    // Incomplete data and broken frames are left to the library.
    if (rest[end] !== FRAME_END || end - PREFIX_BYTES < HEADER_PREFIX_BYTES) return recvFrame.call(reader);
    reader.rest = rest.subarray(end + 1);
    const payload = rest.subarray(PREFIX_BYTES, end);
    return {
      id: payload.readUInt16BE(0),
      channel: rest.readUInt16BE(1),
      size: Number(payload.readBigUInt64BE(4)),
      fields: propertiesOf(payload.subarray(HEADER_PREFIX_BYTES)),
    };
  };
}

function propertiesOf(bytes: Buffer): object {
  try {
    return readProperties(bytes);
  } catch (error) {
    return { undecodable: { reason: errorText(error), bytes } } satisfies UndecodableProperties;
  }
}
