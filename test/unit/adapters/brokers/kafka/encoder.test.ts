import { createRequire } from "node:module";
import { expect, test } from "@jest/globals";
import { thriftyEncoder } from "../../../../../src/adapters/brokers/kafka/encoder.ts";

interface Encoder {
  readonly buffer: Buffer;
  writeVarInt(value: number): Encoder;
  writeVarLong(value: number): Encoder;
}

const require = createRequire(import.meta.url);
const Encoder = require("kafkajs/src/protocol/encoder") as { new (): Encoder; sizeOfVarLong(value: number): number };
const produceRequest = require("kafkajs/src/protocol/requests/produce/v3/request") as (request: object) => {
  encode(): Promise<Encoder>;
};

const NUMBERS = [0, 1, 63, 64, 127, 128, 16_383, 16_384, 2 ** 29, 2 ** 30 - 1, -1, -64, -65, -(2 ** 31), 2 ** 31 - 1];
const LONG_NUMBERS = [...NUMBERS, 2 ** 30, 2 ** 31, 2 ** 40, -(2 ** 40)];

/** Records whose parts are empty, short, as long as a buffer, and longer, with letters of several bytes. */
const LENGTHS = [0, 1, 40, 63, 64, 65, 127, 500, 511, 512, 513, 1000, 5000, 70_000];
const records = LENGTHS.map((length, n) => ({
  key: n === 0 ? null : `key-${n}`,
  value: n === 1 ? null : `${"x".repeat(length)}é`,
  headers: { "content-type": "application/json", [`h${"y".repeat(length % 300)}`]: "ü".repeat(length % 200) },
  timestamp: 1_700_000_000_000 + n * 7,
}));

async function written(): Promise<readonly string[]> {
  const partitions = [{ partition: 0, firstSequence: 5, messages: records }];
  const request = produceRequest({ acks: -1, timeout: 30_000, topicData: [{ topic: "orders", partitions }] });
  return [
    (await request.encode()).buffer.toString("hex"),
    ...NUMBERS.map((value) => new Encoder().writeVarInt(value).buffer.toString("hex")),
    ...LONG_NUMBERS.map((value) => new Encoder().writeVarLong(value).buffer.toString("hex")),
    ...LONG_NUMBERS.map((value) => String(Encoder.sizeOfVarLong(value))),
  ];
}

test("requests have the same bytes with the thrifty encoder", async () => {
  const before = await written();
  thriftyEncoder();
  expect(await written()).toEqual(before);
});

test("a new encoder takes no more than 64 bytes", () => {
  thriftyEncoder();
  expect((new Encoder() as unknown as { buf: Buffer }).buf).toHaveLength(64);
});
