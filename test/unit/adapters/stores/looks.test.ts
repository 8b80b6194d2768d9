import { describe, expect, test } from "@jest/globals";
import { Looks, type Question } from "../../../../src/adapters/stores/postgres/looks.ts";
import type { Row, Statement } from "../../../../src/adapters/stores/postgres/statement.ts";
import { ManualClock } from "../../../support/recorders.ts";

const due: Question = { name: "due", sql: (parameter) => `due(${parameter})` };
const waits: Question = { name: "waits", sql: (parameter) => `waits(${parameter})` };

/** Looks over a pool that writes down what it is asked and answers with `answers`. */
function setup(answers: (statement: Statement) => Row | Error) {
  const clock = new ManualClock();
  const asked: { text: string; values: readonly unknown[] }[] = [];
  const looks = new Looks(
    {
      async run(statement, values = []) {
        asked.push({ text: statement.text.replace(/\s+/g, " "), values });
        const answer = answers(statement);
        if (answer instanceof Error) throw answer;
        return [answer];
      },
    },
    clock,
  );
  return { looks, clock, texts: () => asked.map(({ text }) => text), asked };
}

const TOGETHER = "SELECT (due($1)) AS answer_0, (waits($2)) AS answer_1";
const APART = ["SELECT (due($1)) AS answer_0", "SELECT (waits($1)) AS answer_0"];

describe("looks for work", () => {
  test("what is asked in one turn of the event loop takes one statement, and each gets its own answer", async () => {
    const { looks, asked } = setup(() => ({ answer_0: false, answer_1: true }));
    const answers = await Promise.all([looks.ask(due, "7"), looks.ask(waits, ["orders"])]);
    expect(answers).toEqual([false, true]);
    expect(asked).toEqual([{ text: TOGETHER, values: ["7", ["orders"]] }]);
  });

  test("one question alone takes a statement of its own", async () => {
    const { looks, texts } = setup(() => ({ answer_0: true }));
    expect(await looks.ask(due, "7")).toBe(true);
    expect(await looks.ask(waits, [])).toBe(true);
    expect(texts()).toEqual(APART);
  });

  test("a statement is made once", async () => {
    const made: string[] = [];
    const counted = { name: "counted", sql: (parameter: string) => `counted(${made.push(parameter)})` };
    const { looks } = setup(() => ({ answer_0: true }));
    for (let n = 0; n < 3; n += 1) await looks.ask(counted, n);
    expect(made).toEqual(["$1"]);
  });

  test("after a failure each question is asked alone, and stays so for a minute", async () => {
    const { looks, clock, texts } = setup(({ text }) =>
      text.includes("waits") ? new Error("it waits for a lock") : { answer_0: true },
    );
    const both = () => Promise.allSettled([looks.ask(due, "7"), looks.ask(waits, [])]);
    const answers = [
      { status: "fulfilled", value: true },
      { status: "rejected", reason: new Error("it waits for a lock") },
    ];
    expect(await both()).toEqual(answers);
    clock.advance(59_999);
    expect(await both()).toEqual(answers);
    expect(texts()).toEqual([TOGETHER, ...APART, ...APART]);
    clock.advance(1);
    expect(await both()).toEqual(answers);
    expect(texts().slice(5)).toEqual([TOGETHER, ...APART]);
  });
});
