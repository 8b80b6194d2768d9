import { expect, test } from "@jest/globals";
import { validate, version } from "uuid";
import { deliveryId, destinationsIn } from "../../../src/model/deliveries.ts";
import type { MessageId } from "../../../src/model/rows.ts";

const MESSAGE = "0190aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee" as MessageId;

test("the id of a delivery follows from message and destination alone", () => {
  const ids = ["billing", "audit", "Audit"].map((destination) => deliveryId(MESSAGE, destination));

  expect(new Set(ids).size).toBe(3);
  expect(deliveryId(MESSAGE.toUpperCase() as MessageId, "billing")).toBe(ids[0]);
  for (const id of ids) {
    expect(validate(id)).toBe(true);
    expect(version(id)).toBe(7);
    expect(id.slice(0, 18)).toBe(MESSAGE.slice(0, 18));
  }
  expect(deliveryId("0190aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeef" as MessageId, "billing")).not.toBe(ids[0]);
});

test("only a message row names destinations", () => {
  expect(destinationsIn('["billing","audit"]')).toEqual(["billing", "audit"]);
  expect(destinationsIn("[]")).toEqual([]);
  expect(destinationsIn(null)).toBeUndefined();
});
