import { expect, test } from "@jest/globals";
import { parseMessage, statusUpdate } from "../../../../src/adapters/capture/postgresLogical.ts";

/** Bytes as PostgreSQL's documentation describes them: numbers are big-endian. */
const bytes = (...parts: readonly (string | bigint)[]) =>
  Buffer.concat(
    parts.map((part) => {
      if (typeof part === "string") return Buffer.from(part, "latin1");
      const buffer = Buffer.alloc(8);
      buffer.writeBigInt64BE(part);
      return buffer;
    }),
  );
const data = (...body: readonly (string | bigint)[]) => bytes("w", 1n, 2n, 3n, ...body);

test.each([
  ["a commit", data("C\0", 8n, 0x16_0000_0010n, 1_500_000n), ["commit", 0x16_0000_0010n, Date.UTC(2000, 0, 1) + 1500]],
  ["an insert", data("I\0\0\0\x03N\0\x01t\0\0\0\x03R\0I"), ["insert", undefined, undefined]],
  ["a keepalive", bytes("k", 0x1_0000_0002n, 5n, "\x01"), ["keepalive", 0x1_0000_0002n, undefined]],
  ["an update", data("U\0\0\0\x03N\0\0"), undefined],
  ["a begin", data("B", 0n, 0n), undefined],
  ["another message", bytes("?"), undefined],
])("%s of the stream is read", (_, chunk, expected) => {
  const message = parseMessage(chunk);
  const [kind, end, committedAt] = expected ?? [];
  expect(message).toEqual(expected === undefined ? undefined : { kind, end, committedAt });
});

test("a status update confirms one position as received, kept and applied, and requests a reply", () => {
  const update = statusUpdate(0x16_b374_d848n, Date.UTC(2000, 0, 1) + 2);
  expect(update.toString("hex")).toBe(`72${"00000016b374d848".repeat(3)}${(2000).toString(16).padStart(16, "0")}01`);
});
