import { isUtf8 } from "node:buffer";
import { errorText } from "../../../model/errors.ts";

/** Deeper values are dropped: a table in thousands of tables must not exhaust the stack. */
const MAX_DEPTH = 100;

/**
 * The properties of a message, with the names and types of the client library, except `headers`: see {@link
 * readProperties}.
 */
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
 * an integer beyond a number's precision becomes a bigint; too deep nesting becomes null.
 *
 * @param bytes flags and properties
 * @throws Error when they violate AMQP
 */
export function readProperties(bytes: Buffer): Properties {
  const reader = new Reader(bytes);
  const flags = (reader.octet() << 8) | reader.octet();
  const properties: Record<string, unknown> = {};
  for (let n = 0; n < PROPERTIES.length; n += 1) {
    const property = PROPERTIES[n];
    if (property !== undefined && (flags & (0x8000 >> n)) !== 0) properties[property[0]] = property[1](reader);
  }
  return properties;
}

function table(reader: Reader, depth: number): object | null {
  const end = reader.partEnd();
  if (depth > MAX_DEPTH) return reader.skipTo(end);
  // A field may be called __proto__, and an assignment would set the prototype.
  const fields: Record<string, unknown> = {};
  const outer = reader.narrow(end);
  while (reader.offset < end) {
    const name = reader.shortText();
    const field = value(reader, depth);
    if (name === "__proto__") Object.defineProperty(fields, name, { value: field, enumerable: true });
    else fields[name] = field;
  }
  reader.narrow(outer);
  return fields;
}

function list(reader: Reader, depth: number): unknown[] | null {
  const end = reader.partEnd();
  if (depth > MAX_DEPTH) return reader.skipTo(end);
  const values: unknown[] = [];
  const outer = reader.narrow(end);
  while (reader.offset < end) values.push(value(reader, depth));
  reader.narrow(outer);
  return values;
}

/** A value after its type (AMQP 0-9-1, section 4.2.5.5, with the types as RabbitMQ uses them). */
function value(reader: Reader, depth: number): unknown {
  const type = String.fromCharCode(reader.octet());
  switch (type) {
    case "S":
      return reader.text(reader.length());
    case "x":
      return reader.bytes(reader.length());
    case "F":
      return table(reader, depth + 1);
    case "A":
      return list(reader, depth + 1);
    case "t":
      return reader.octet() !== 0;
    case "b":
      return reader.bytes(1).readInt8();
    case "B":
      return reader.octet();
    case "s":
      return reader.bytes(2).readInt16BE();
    case "u":
      return reader.bytes(2).readUInt16BE();
    case "I":
      return reader.bytes(4).readInt32BE();
    case "i":
      return reader.bytes(4).readUInt32BE();
    case "l":
      return exact(reader.bytes(8).readBigInt64BE());
    case "f":
      return reader.bytes(4).readFloatBE();
    case "d":
      return reader.bytes(8).readDoubleBE();
    case "D":
      return { "!": "decimal", value: { places: reader.octet(), digits: reader.length() } };
    case "T":
      return { "!": "timestamp", value: Number(reader.bytes(8).readBigUInt64BE()) };
    case "V":
      return null;
    default:
      throw new Error(`a value has the unknown type ${JSON.stringify(type)}`);
  }
}

function exact(integer: bigint): number | bigint {
  const number = Number(integer);
  return Number.isSafeInteger(number) ? number : integer;
}

const REPLACEMENT = "\ufffd";

/** Reads values from the front of a buffer, or of a part of it. Every method throws an Error at its end. */
class Reader {
  readonly #buffer: Buffer;
  #offset = 0;
  #end: number;

  constructor(buffer: Buffer) {
    this.#buffer = buffer;
    this.#end = buffer.length;
  }

  get offset(): number {
    return this.#offset;
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

  /** Reads the length of a part. @returns where it ends */
  partEnd(): number {
    const length = this.length();
    const end = this.#offset + length;
    if (end > this.#end) throw tooLong();
    return end;
  }

  /** Skips the rest of a part. */
  skipTo(end: number): null {
    this.#offset = end;
    return null;
  }

  /** Limits reading to `end`. @returns the former end */
  narrow(end: number): number {
    const former = this.#end;
    this.#end = end;
    return former;
  }

  #take(length: number): number {
    const from = this.#offset;
    this.#offset = from + length;
    if (this.#offset > this.#end) throw tooLong();
    return from;
  }
}

function tooLong(): Error {
  return new Error("a value is longer than what it is part of");
}

/** Replaces properties that cannot be read. */
export interface UndecodableProperties {
  readonly undecodable: { readonly reason: string; readonly bytes: Buffer };
}

/**
 * How amqplib 2.3 reads frames: each call returns the next one; `rest` begins with it once it has arrived completely.
 */
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
 * Reads the properties of messages instead of the client library, which treats properties it cannot read (tables in
 * thousands of tables, an unknown type) as a connection fault: the broker would redeliver the message on each new
 * connection, for ever. Here it arrives with {@link UndecodableProperties}. Does nothing for a library with another
 * structure.
 *
 * @param connection the library's
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
