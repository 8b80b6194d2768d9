import { describe, expect, test } from "@jest/globals";
import { parseServerMessage, statusUpdate } from "../../../../src/adapters/capture/postgres-logical/connection.ts";
import { formatLsn, parseLsn, TransactionReader } from "../../../../src/adapters/capture/postgres-logical/stream.ts";

/** Bytes as PostgreSQL's documentation describes them: numbers are big-endian, texts end in a zero. */
function bytes(...parts: readonly (string | Buffer)[]): Buffer {
  return Buffer.concat(parts.map((part) => (typeof part === "string" ? Buffer.from(part, "latin1") : part)));
}

function int32(value: number): Buffer {
  const buffer = Buffer.alloc(4);
  buffer.writeUInt32BE(value);
  return buffer;
}

function int64(value: bigint): Buffer {
  const buffer = Buffer.alloc(8);
  buffer.writeBigInt64BE(value);
  return buffer;
}

const begin = bytes("B", int64(0n), int64(0n), int32(7));
const commit = (end: bigint, microseconds: bigint) =>
  bytes("C", "\0", int64(end - 8n), int64(end), int64(microseconds));
const relation = (id: number, schema: string, table: string) =>
  bytes("R", int32(id), schema, "\0", table, "\0", "d", "\0\0");
const insert = (id: number) => bytes("I", int32(id), "N", "\0\x01", "t", int32(3), "R\0I");
const update = (id: number) => bytes("U", int32(id), "N", "\0\0");

function reader() {
  return new TransactionReader((schema, table) => schema === "public" && table === "outbox");
}

describe("a transaction in pgoutput", () => {
  test("counts when it inserts into the table, with its end and its time", () => {
    const transactions = reader();
    expect([begin, relation(3, "public", "outbox"), insert(3)].map((message) => transactions.read(message))).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
    expect(transactions.inTransaction).toBe(true);
    expect(transactions.read(commit(0x16_0000_0010n, 1_500_000n))).toEqual({
      end: 0x16_0000_0010n,
      committedAt: Date.UTC(2000, 0, 1) + 1500,
      inserted: true,
    });
    expect(transactions.inTransaction).toBe(false);
  });

  test.each([
    ["an update of the table", [relation(3, "public", "outbox"), update(3)]],
    ["an insert into a table of the same name elsewhere", [relation(3, "audit", "outbox"), insert(3)]],
    ["an insert into another table", [relation(3, "public", "outbox"), relation(4, "public", "orders"), insert(4)]],
    ["a table that was renamed", [relation(3, "public", "outbox"), relation(3, "public", "outbox_old"), insert(3)]],
    ["an empty transaction", []],
  ])("does not count for %s", (_, messages) => {
    const transactions = reader();
    for (const message of [begin, ...messages]) transactions.read(message);
    expect(transactions.read(commit(64n, 0n))?.inserted).toBe(false);
  });

  test("is known by a table that an earlier one described, and begins anew each time", () => {
    const transactions = reader();
    for (const message of [relation(3, "public", "outbox"), begin, insert(3), commit(64n, 0n), begin]) {
      transactions.read(message);
    }
    expect(transactions.read(commit(128n, 0n))?.inserted).toBe(false);
    transactions.read(begin);
    transactions.read(insert(3));
    expect(transactions.read(commit(192n, 0n))?.inserted).toBe(true);
  });
});

test("a keepalive tells how far the server has read, and whether it wants an answer", () => {
  const keepalive = (reply: string) => bytes("k", int64(0x1_0000_0002n), int64(5n), reply);
  expect(parseServerMessage(keepalive("\x01"))).toEqual({
    kind: "keepalive",
    walEnd: 0x1_0000_0002n,
    replyRequested: true,
  });
  expect(parseServerMessage(keepalive("\0"))).toMatchObject({ replyRequested: false });
  expect(parseServerMessage(bytes("w", int64(1n), int64(2n), int64(3n), "body"))).toEqual({
    kind: "data",
    body: Buffer.from("body"),
  });
  expect(parseServerMessage(bytes("?"))).toBeUndefined();
});

test("a status update confirms one position as received, kept and applied", () => {
  const update = statusUpdate(0x16_b374_d848n, Date.UTC(2000, 0, 1) + 2, true);
  expect(update.toString("hex")).toBe(`72${"00000016b374d848".repeat(3)}${(2000).toString(16).padStart(16, "0")}01`);
  expect(statusUpdate(1n, 0, false)[33]).toBe(0);
});

test.each(["0/0", "16/B374D848", "FFFFFFFF/FFFFFFFF"])("%s is a position that reads as it was written", (text) => {
  expect(formatLsn(parseLsn(text) ?? -1n)).toBe(text);
});

test.each(["", "16", "16/", "1 6/0", "123456789/0", "x/1"])("%p is no position", (text) => {
  expect(parseLsn(text)).toBeUndefined();
});
