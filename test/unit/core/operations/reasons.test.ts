import { expect, test } from "@jest/globals";
import { FailedGroups, reasonGroup } from "../../../../src/core/operations/reasons.ts";
import { anyText } from "../../../property/fuzz.ts";
import { Dice } from "../../../property/receipts/dice.ts";
import { SEED } from "../../../property/settings.ts";

const OF_ID = "POST http://# was answered 404: no customer #";

test.each([
  ["POST http://10.0.0.7:8080 was answered 404: no customer 17", OF_ID],
  ["POST http://10.0.0.8:8080 was answered 404: no customer cus_9s6XKzkNRiz8i3", OF_ID],
  [`POST http://10.0.0.8:80 was answered 404: no  customer\n${"deadbeef-aaaa-bbbb-cccc-deadbeefffff"}`, OF_ID],
  ["POST http://10.0.0.7:8080 was answered 503: no customer 17", "POST http://# was answered 503: no customer #"],
  ["timed out at 2026-01-05T08:30:00.123Z", "timed out at #-#-#"],
  [`answered 500: ${"x".repeat(110)}`, `answered 500: ${"x".repeat(106)}`],
  [`answered 500: ${"x".repeat(106)} and what differs`, `answered 500: ${"x".repeat(106)}`],
])("the group of %j is %j", (reason, group) => {
  expect(reasonGroup(reason)).toBe(group);
});

test("the text of a group is of that group, also cut as a database cuts it", () => {
  const dice = new Dice(SEED);
  for (let left = 2000; left > 0; left -= 1) {
    const reason = anyText(dice, 300);
    const group = reasonGroup(reason);
    expect([SEED, reason, reasonGroup(group)]).toEqual([SEED, reason, group]);
    expect([SEED, reason, reasonGroup(reason.slice(0, 200))]).toEqual([SEED, reason, group]);
  }
});

test("counts a thousand groups, and shows the largest twenty", () => {
  const groups = new FailedGroups();
  const view = { destinationOf: () => "billing", redact: (text: string) => text };
  const add = (n: number) =>
    groups.add({ topic: `topic ${n}`, destination: null, isPinned: false, lastError: "answered 503" }, view);
  for (let n = 0; n < 1100; n += 1) add(n);
  add(7);
  add(1099);
  expect(groups.shown).toHaveLength(20);
  expect(groups.shown[0]).toEqual({ reason: "answered 503", topic: "topic 7", destination: "billing", count: 2 });
  expect(groups.shown[1]?.count).toBe(1);
});
