import { isUtf8 } from "node:buffer";

/** What lies deeper in a table or list is left out: a table in thousands of tables must not exhaust the stack. */
const MAX_DEPTH = 100;

/** The properties of a message, under the names and in the forms of the client library, but for `headers`: see {@link readProperties}. */
export type Properties = Readonly<Record<string, unknown>>;

/** Properties of class `basic` in the order of their flags, from the highest bit down (AMQP 0-9-1, section 1.8.3). */
const PROPERTIES: readonly (readonly [string, (reader: Reader) => unknown])[] = [
  ["contentType", (reader) => reader.shortText()],
  ["contentEncoding", (reader) => reader.shortText()],
  ["headers", (reader) => table(reader.part(), 0)],
  ["deliveryMode", (reader) => reader.take(1).readUInt8()],
  ["priority", (reader) => reader.take(1).readUInt8()],
  ["correlationId", (reader) => reader.shortText()],
  ["replyTo", (reader) => reader.shortText()],
  ["expiration", (reader) => reader.shortText()],
  ["messageId", (reader) => reader.shortText()],
  ["timestamp", (reader) => Number(reader.take(8).readBigUInt64BE())],
  ["type", (reader) => reader.shortText()],
  ["userId", (reader) => reader.shortText()],
  ["appId", (reader) => reader.shortText()],
  ["clusterId", (reader) => reader.shortText()],
];

/**
 * Reads the property list of a message. Text that is no UTF-8 comes in base64, so that two texts never become one; an integer that no number holds
 * comes as a bigint; what is nested too deeply as null.
 *
 * @param bytes flags and properties
 * @throws Error when they break the rules of AMQP
 */
export function readProperties(bytes: Buffer): Properties {
  const reader = new Reader(bytes);
  const flags = reader.take(2).readUInt16BE();
  const properties: Record<string, unknown> = {};
  PROPERTIES.forEach(([name, read], n) => {
    if ((flags & (0x8000 >> n)) !== 0) properties[name] = read(reader);
  });
  return properties;
}

function table(reader: Reader, depth: number): object {
  const entries: [string, unknown][] = [];
  while (!reader.isAtEnd) entries.push([reader.shortText(), value(reader, depth)]);
  return Object.fromEntries(entries);
}

function list(reader: Reader, depth: number): unknown[] {
  const values: unknown[] = [];
  while (!reader.isAtEnd) values.push(value(reader, depth));
  return values;
}

/** A value with its type in front (AMQP 0-9-1, section 4.2.5.5, with the types as RabbitMQ uses them). */
function value(reader: Reader, depth: number): unknown {
  const type = String.fromCharCode(reader.take(1).readUInt8());
  switch (type) {
    case "S":
      return textOf(reader.bytes());
    case "x":
      return reader.bytes();
    case "F":
    case "A": {
      const part = reader.part();
      if (depth >= MAX_DEPTH) return null;
      return type === "F" ? table(part, depth + 1) : list(part, depth + 1);
    }
    case "t":
      return reader.take(1).readUInt8() !== 0;
    case "b":
      return reader.take(1).readInt8();
    case "B":
      return reader.take(1).readUInt8();
    case "s":
      return reader.take(2).readInt16BE();
    case "u":
      return reader.take(2).readUInt16BE();
    case "I":
      return reader.take(4).readInt32BE();
    case "i":
      return reader.take(4).readUInt32BE();
    case "l":
      return exact(reader.take(8).readBigInt64BE());
    case "f":
      return reader.take(4).readFloatBE();
    case "d":
      return reader.take(8).readDoubleBE();
    case "D":
      return { "!": "decimal", value: { places: reader.take(1).readUInt8(), digits: reader.take(4).readUInt32BE() } };
    case "T":
      return { "!": "timestamp", value: Number(reader.take(8).readBigUInt64BE()) };
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

function textOf(bytes: Buffer): string {
  const text = bytes.toString("utf8");
  return text.includes(REPLACEMENT) && !isUtf8(bytes) ? bytes.toString("base64") : text;
}

/** Takes bytes from the front of a buffer. */
class Reader {
  readonly #buffer: Buffer;
  #offset = 0;

  constructor(buffer: Buffer) {
    this.#buffer = buffer;
  }

  get isAtEnd(): boolean {
    return this.#offset === this.#buffer.length;
  }

  /** @throws Error when there are fewer */
  take(length: number): Buffer {
    const end = this.#offset + length;
    if (end > this.#buffer.length) throw new Error("a value is longer than what it is part of");
    const taken = this.#buffer.subarray(this.#offset, end);
    this.#offset = end;
    return taken;
  }

  shortText(): string {
    return textOf(this.take(this.take(1).readUInt8()));
  }

  /** Bytes with a length of four bytes in front. */
  bytes(): Buffer {
    return this.take(this.take(4).readUInt32BE());
  }

  part(): Reader {
    return new Reader(this.bytes());
  }
}
