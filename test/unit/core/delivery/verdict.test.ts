import { expect, test } from "@jest/globals";
import { HTTP_ERROR_CODES, statusCode } from "../../../../src/adapters/destinations/http/errors.ts";
import { KAFKA_ERROR_CODES } from "../../../../src/adapters/destinations/kafka/errors.ts";
import { NATS_ERROR_CODES } from "../../../../src/adapters/destinations/nats/index.ts";
import { RABBITMQ_ERROR_CODES } from "../../../../src/adapters/destinations/rabbitmq/message.ts";
import { VERDICTS, verdictOf } from "../../../../src/core/delivery/failure.ts";
import { PublishError } from "../../../../src/model/errors.ts";

const CORE_CODES = ["transform_failed", "transform_unavailable", "address_empty"];
const verdict = (code: string) => verdictOf(new PublishError(code, "failed"));

test("every code of every adapter has a verdict, and there is none for a code that nobody has", () => {
  const codes = [
    ...HTTP_ERROR_CODES,
    ...RABBITMQ_ERROR_CODES,
    ...KAFKA_ERROR_CODES,
    ...NATS_ERROR_CODES,
    ...CORE_CODES,
  ];
  expect([...VERDICTS.keys()].sort()).toEqual([...new Set(codes)].sort());
});

test.each([
  [301, "healthy"],
  [400, "healthy"],
  [408, "failed"],
  [422, "healthy"],
  [429, "failed"],
  [500, "failed"],
  [503, "failed"],
])("an answer %d says that the receiver is %s", (status, expected) => {
  expect(verdict(statusCode(status))).toBe(expected);
});

test.each([
  ["timeout", "failed"],
  ["nacked", "failed"],
  ["unroutable", "healthy"],
  ["topic_missing", "healthy"],
  ["transform_failed", "unasked"],
  ["transform_unavailable", "unknown"],
  ["constructor", "unknown"],
])("%s says that it is %s", (code, expected) => {
  expect(verdict(code)).toBe(expected);
});

test("what is no PublishError says nothing", () => {
  expect(verdictOf(new Error("timeout"))).toBe("unknown");
});
