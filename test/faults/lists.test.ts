import { expect, test } from "@jest/globals";
import { ListHistory, messageAt } from "../support/chaos/lists.ts";

/** Messages of `key` by their number: 0 goes to all three destinations, 1 to the first two, 2 to the second one alone. */
function historyOf(...arrivals: readonly string[]): ListHistory {
  const history = new ListHistory(
    () => 0,
    (key) => key === "key",
  );
  for (const n of [0, 1, 2]) {
    history.sent(`m-0-${n}`, "key");
    history.acknowledged(`m-0-${n}`);
  }
  history.sent("m-1-0", "other");
  for (const arrival of arrivals) {
    const [id = "", destination] = arrival.split(" ");
    history.received(messageAt(id, `/${destination}`));
  }
  return history;
}

test("each delivery of a message has to come, in the order of its key at its destination", () => {
  const all = ["m-0-0 list-1", "m-0-1 list-1", "m-0-0 list-2", "m-0-1 list-2", "m-0-2 list-2", "m-0-0 list-3"];
  expect(historyOf(...all, "m-1-0 hook").violations()).toEqual([]);
  expect(historyOf(...all.slice(1)).violations()).toEqual(["1 acknowledged but never delivered: m-0-0>list-1"]);
  expect(historyOf(...all, "m-0-1 list-3").violations()).toEqual(["1 delivered but never sent: m-0-1>list-3"]);
  const [first = "", second = ""] = all;
  expect(historyOf(second, first, ...all.slice(2)).violations()).toEqual([
    "1 delivered out of order: key key>list-1: m-0-0>list-1 came after m-0-1>list-1",
  ]);
  expect(historyOf(...all).acknowledgedIds).toEqual(["m-0-0", "m-0-1", "m-0-2"]);
});
