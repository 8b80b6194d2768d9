import { describe, expect, test } from "@jest/globals";
import { History } from "../support/history.ts";

/** Messages a-1, a-2 and b-1, sent in this order and all acknowledged; then what arrives. */
function historyOf(...arrivals: readonly string[]): History {
  const history = new History();
  for (const id of ["a-1", "a-2", "b-1"]) {
    history.sent(id, id.charAt(0));
    history.acknowledged(id);
  }
  for (const id of arrivals) history.received(id, "replica");
  return history;
}

describe("the history of a run has", () => {
  test("no violation when each message came once, keys in any order among each other", () => {
    expect(historyOf("b-1", "a-1", "a-2").violations()).toEqual([]);
  });

  test("a violation for an acknowledged message that did not come, and none for a message that was never acknowledged", () => {
    const history = historyOf("a-1", "b-1");
    history.sent("b-2", "b");
    expect(history.missing).toEqual(["a-2"]);
    expect(history.violations()).toEqual(["1 acknowledged but never delivered: a-2"]);
  });

  test("a violation for messages of a key that came in another order than they were sent", () => {
    expect(historyOf("a-2", "b-1", "a-1").violations()).toEqual([
      "1 delivered out of order: key a: a-1 came after a-2",
    ]);
  });

  test("a violation for a repetition, unless the message was in flight at a fault", () => {
    const history = historyOf("a-1", "a-1", "a-2", "b-1");
    expect(history.violations()).toEqual([
      "1 delivered more than once without having been in flight at a fault: a-1 (replica, replica)",
    ]);
    history.mayRepeat(["a-1"]);
    expect(history.violations()).toEqual([]);
  });

  test("no violation for a late repetition of an earlier message: only first arrivals have an order", () => {
    const history = historyOf("a-1", "a-2", "a-1", "b-1");
    history.mayRepeat(["a-1"]);
    expect(history.violations()).toEqual([]);
  });

  test("a violation for a message that nobody sent", () => {
    expect(historyOf("a-1", "a-2", "b-1", "c-1").violations()).toEqual(["1 delivered but never sent: c-1"]);
  });
});
