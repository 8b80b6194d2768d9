import { afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { PublishError } from "../../src/model/errors.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { Receiver } from "../support/receiver.ts";
import { Destinations } from "../unit/adapters/destinations/http/setup.ts";
import { settings } from "./settings.ts";
import { anyText } from "./text.ts";

/** Answers of receivers to a batch: each of its messages ends once, and as delivered only if the answer says so. */

const COUNT = 3;
const SUCCESS = 409;
const DEAD = 410;
/** Of a longer answer nothing counts. */
const MOST_BYTES = 4 * 1024 * 1024;

const destinations = new Destinations();
let receiver: Receiver;
let answer: Uint8Array = Buffer.alloc(0);
let requests = 0;
beforeEach(async () => {
  receiver = await Receiver.start();
  receiver.answer = (_, response) => {
    requests += 1;
    response.statusCode = 207;
    response.end(answer);
  };
});
afterEach(async () => {
  await destinations.close();
  await receiver.close();
});
failOnLeaks();

const statuses = fc.oneof(fc.integer({ min: 100, max: 599 }), fc.constantFrom(200, 202, SUCCESS, DEAD, 400, 503));
const wrongStatuses = fc.oneof(
  fc.constantFrom<unknown>("200", "ok", true, null, [200], { status: 200 }, 200.5, -200, 0, 99, 600, 1e300),
  fc.jsonValue(),
);
const errors = fc.oneof(
  anyText(),
  fc.jsonValue(),
  fc.constantFrom("x".repeat(100_000), "\ud800", "$&\0\r\n", "__proto__"),
);
const ids = fc.oneof(fc.constantFrom("a", "a", "b", "unknown"), fc.jsonValue());
const items = fc.oneof(
  { weight: 6, arbitrary: fc.record({ status: statuses, error: errors, id: ids }, { requiredKeys: ["status"] }) },
  { weight: 1, arbitrary: fc.record({ status: wrongStatuses, error: errors, id: ids }, { requiredKeys: [] }) },
  { weight: 1, arbitrary: fc.jsonValue() },
);
const lists = fc.oneof(
  { weight: 6, arbitrary: fc.array(items, { minLength: COUNT, maxLength: COUNT }) },
  { weight: 1, arbitrary: fc.array(items, { maxLength: 2 * COUNT }) },
  { weight: 1, arbitrary: fc.constant(Array.from({ length: 50_000 }, () => ({ status: 200 }))) },
);
const documents = fc.oneof(
  { weight: 4, arbitrary: lists },
  { weight: 4, arbitrary: fc.record({ results: lists, status: fc.constantFrom(200, 500) }) },
  { weight: 2, arbitrary: fc.record({ items: lists }) },
  { weight: 1, arbitrary: fc.record({ results: fc.jsonValue(), items: fc.jsonValue() }) },
  { weight: 1, arbitrary: fc.jsonValue() },
);
/** Pieces cut out, repeated or exchanged. */
const mutated = fc
  .tuple(documents, fc.double({ min: 0, max: 1, noNaN: true }), fc.nat(20), anyText({ maxLength: 5 }))
  .map(([document, at, length, piece]) => {
    const text = JSON.stringify(document);
    const start = Math.floor(at * text.length);
    return Buffer.from(text.slice(0, start) + piece + text.slice(start + length));
  });
const answers = fc.oneof(
  { weight: 6, arbitrary: documents.map((document) => Buffer.from(JSON.stringify(document))) },
  { weight: 3, arbitrary: mutated },
  { weight: 1, arbitrary: fc.uint8Array({ maxLength: 200 }) },
  { weight: 1, arbitrary: fc.string().map((text) => Buffer.from(text)) },
  {
    weight: 1,
    arbitrary: fc.constantFrom("", "null", "[".repeat(50_000), "\ufeff[]").map((text) => Buffer.from(text)),
  },
  {
    weight: 1,
    arbitrary: fc
      .constantFrom(MOST_BYTES, MOST_BYTES + 1)
      .map((length) => Buffer.from(`[${'{"status":200},'.repeat(COUNT - 1)}{"status":200}]`.padEnd(length))),
  },
);

/** The status that an answer has for each message; undefined if a message has none. */
function statusesIn(bytes: Uint8Array): readonly number[] | undefined {
  if (bytes.length > MOST_BYTES) return undefined;
  let document: unknown;
  try {
    document = JSON.parse(Buffer.from(bytes).toString("utf8"));
  } catch {
    return undefined;
  }
  const { results, items = undefined } = Object(document) as { results?: unknown; items?: unknown };
  const list: unknown = Array.isArray(document) ? document : (results ?? items);
  if (!Array.isArray(list) || list.length !== COUNT) return undefined;
  const found = list.map((item: { status?: unknown } | null) => item?.status);
  const areStatuses = found.every(
    (status) => Number.isInteger(status) && Number(status) >= 100 && Number(status) < 600,
  );
  return areStatuses ? (found as number[]) : undefined;
}

const isDelivered = (status: number) => (status >= 200 && status < 300) || status === SUCCESS;

describe("the answer to a batch", () => {
  test("ends each of its messages once, as delivered only if it says so for that message", async () => {
    const { publish } = destinations.create(
      {
        baseUrl: receiver.url,
        batch: { maxMessages: COUNT, maxBytes: 1000, maxWaitMs: 10_000, format: "array" },
        successStatuses: [SUCCESS],
        deadStatuses: [DEAD],
      },
      {},
    );
    const seen = { delivered: 0, refused: 0, unreadable: 0 };
    await fc.assert(
      fc.asyncProperty(answers, async (bytes) => {
        answer = bytes;
        requests = 0;
        const outcomes = await Promise.allSettled(
          Array.from({ length: COUNT }, (_, n) => publish({ body: String(n) })),
        );
        expect(requests).toBe(1);
        const expected = statusesIn(bytes);
        outcomes.forEach((outcome, n) => {
          const status = expected?.[n];
          if (status !== undefined && isDelivered(status)) {
            expect(outcome.status).toBe("fulfilled");
            seen.delivered += 1;
            return;
          }
          if (outcome.status === "fulfilled") throw new Error(`message ${n} counts as delivered`);
          const { reason } = outcome;
          expect(reason).toBeInstanceOf(PublishError);
          if (status === undefined) {
            expect(reason).toMatchObject({ code: "bad_response", isPermanent: false });
            seen.unreadable += 1;
          } else {
            expect(reason).toMatchObject({ status: String(status), isPermanent: status === DEAD });
            seen.refused += 1;
          }
          expect(reason.message.length).toBeLessThan(3000);
        });
      }),
      settings(500),
    );
    // The generator reaches every case.
    expect(Math.min(seen.delivered, seen.refused, seen.unreadable)).toBeGreaterThan(0);
  }, 60_000);
});
