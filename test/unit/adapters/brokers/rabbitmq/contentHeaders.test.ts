import { describe, expect, test } from "@jest/globals";
import { readContentHeaders, readProperties } from "../../../../../src/adapters/brokers/rabbitmq/properties.ts";

const bytes = (...parts: readonly (string | number | Buffer)[]): Buffer =>
  Buffer.concat(parts.map((part) => (typeof part === "number" ? Buffer.from([part]) : Buffer.from(part))));
const long = (length: number): Buffer => {
  const buffer = Buffer.alloc(4);
  buffer.writeUInt32BE(length);
  return buffer;
};
const withLength = (part: Buffer): Buffer => bytes(long(part.length), part);
/** A property list that holds a header table alone. */
const withTable = (table: Buffer): Buffer => bytes(0x20, 0, withLength(table));
const headersOf = (table: Buffer): unknown => readProperties(withTable(table)).headers;

describe("the properties of an AMQP message", () => {
  test("are read in the order of their flags", () => {
    const read = readProperties(bytes(0x9c, 0x88, 1, "j", 2, 7, 1, "c", 1, "m", 3, "app"));
    expect(read).toEqual({
      contentType: "j",
      deliveryMode: 2,
      priority: 7,
      correlationId: "c",
      messageId: "m",
      appId: "app",
    });
    expect(readProperties(bytes(0, 0))).toEqual({});
  });

  test("that are no UTF-8 come in base64, so that two never become one", () => {
    const id = (byte: number) => readProperties(bytes(0, 0x80, 1, byte)).messageId;
    expect(id(0xff)).toBe("/w==");
    expect(id(0xfe)).toBe("/g==");
    expect(readProperties(bytes(0, 0x80, 3, "\ufffd")).messageId).toBe("\ufffd");
  });

  test("hold header values of every type", () => {
    const eight = (value: bigint) => {
      const buffer = Buffer.alloc(8);
      buffer.writeBigInt64BE(value);
      return buffer;
    };
    const table = bytes(
      bytes(1, "S", "S", long(2), "ab"),
      bytes(1, "x", "x", long(1), 0xff),
      bytes(1, "t", "t", 1),
      bytes(1, "b", "b", 0xff),
      bytes(1, "B", "B", 0xff),
      bytes(1, "s", "s", 0xff, 0xfe),
      bytes(1, "u", "u", 0xff, 0xfe),
      bytes(1, "I", "I", long(5)),
      bytes(1, "i", "i", 0xff, 0xff, 0xff, 0xff),
      bytes(1, "l", "l", eight(-5n)),
      bytes(1, "L", "l", eight(2n ** 60n)),
      bytes(1, "T", "T", eight(1n)),
      bytes(4, "late", "T", eight(2n ** 60n)),
      bytes(1, "D", "D", 2, long(5)),
      bytes(5, "whole", "D", 0, long(12)),
      bytes(1, "V", "V"),
      bytes(1, "A", "A", withLength(bytes("t", 0, "V"))),
      bytes(1, "F", "F", withLength(bytes(9, "__proto__", "V"))),
    );
    const headers = headersOf(table) as Record<string, unknown>;
    expect(headers).toMatchObject({
      S: "ab",
      x: Buffer.from([0xff]),
      t: true,
      b: -1,
      B: 255,
      s: -2,
      u: 65534,
      I: 5,
      i: 4294967295,
      l: -5,
      L: 2n ** 60n,
      T: new Date(1000),
      late: 2 ** 60,
      D: "0.05",
      whole: "12",
      V: null,
      A: [false, null],
    });
    expect(Object.keys(headers.F as object)).toEqual(["__proto__"]);
  });

  test("may be nested as deep as a frame allows: what lies too deep is null", () => {
    let table = bytes(1, "n", "V");
    for (let depth = 0; depth < 5000; depth += 1) table = bytes(1, "n", "F", withLength(table));
    expect(JSON.stringify(headersOf(table))).toBe(`${'{"n":'.repeat(101)}null${"}".repeat(101)}`);
  });

  test.each([
    ["an unknown type", bytes(1, "a", "?"), /unknown type "\?"/],
    ["a value that is longer than its table", bytes(1, "a", "S", long(9), "b"), /longer than what it is part of/],
    ["a name that is longer than its table", bytes(9, "a"), /longer than what it is part of/],
    ["a list that is longer than its table", bytes(1, "a", "A", long(9)), /longer than what it is part of/],
  ])("with %s cannot be read", (_, table, reason) => {
    expect(() => headersOf(table)).toThrow(reason);
  });
});

describe("a connection of the client library", () => {
  const frame = (type: number, payload: Buffer) => bytes(type, 0, 1, withLength(payload), 0xce);
  const header = (properties: Buffer) => frame(2, bytes(0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, properties));
  /** Gives what is left to the library when that is asked. */
  const connectionWith = (rest: Buffer) => {
    const connection = { rest, recvFrame: () => `library: ${connection.rest.length} bytes` as unknown };
    readContentHeaders(connection);
    return connection;
  };

  test("gives the properties of a message, and leaves what follows", () => {
    const connection = connectionWith(bytes(header(bytes(0, 0x80, 1, "m")), "rest"));
    expect(connection.recvFrame()).toEqual({ id: 60, channel: 1, size: 9, fields: { messageId: "m" } });
    expect(connection.recvFrame()).toBe("library: 4 bytes");
  });

  test("reports which part of a message cannot be read, and continues", () => {
    const properties = withTable(bytes(1, "a", "?"));
    const connection = connectionWith(bytes(header(properties), "rest"));
    expect(connection.recvFrame()).toMatchObject({
      fields: { undecodable: { reason: 'a value has the unknown type "?"', bytes: properties } },
    });
    expect(connection.recvFrame()).toBe("library: 4 bytes");
  });

  test("leaves other frames, and incomplete or broken ones, to the library", () => {
    const complete = header(bytes(0, 0));
    const broken = Buffer.from(complete);
    broken[broken.length - 1] = 0;
    for (const rest of [frame(1, bytes("abcd")), complete.subarray(0, -1), broken, Buffer.alloc(0)]) {
      expect(connectionWith(rest).recvFrame()).toBe(`library: ${rest.length} bytes`);
    }
  });
});
