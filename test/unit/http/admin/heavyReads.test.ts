import { describe, expect, test } from "@jest/globals";
import { createHeavyReads } from "../../../../src/http/admin/operation.ts";
import { StoreError } from "../../../../src/model/errors.ts";
import { failOnLeaks } from "../../../support/leaks.ts";
import { ManualClock } from "../../../support/recorders.ts";

failOnLeaks();

/** Reads that note when they begin and end; a rest passes at once. */
function setup() {
  const clock = new ManualClock(0);
  const log: string[] = [];
  const reads = createHeavyReads(clock, async (ms) => {
    if (ms > 0) log.push(`rest ${ms}`);
    clock.advance(ms);
  });
  let running = 0;
  const ask = (question: string, takesMs = 0, fault?: Error, isGone?: () => boolean) =>
    reads(
      question,
      async () => {
        running += 1;
        log.push(`${question}${running > 1 ? ` beside ${running - 1}` : ""}`);
        await new Promise(setImmediate);
        clock.advance(takesMs);
        running -= 1;
        if (fault !== undefined) throw fault;
        return `${question} ${log.length}`;
      },
      isGone,
    );
  return { ask, log };
}

describe("heavy reads", () => {
  test("are one read for all that ask the same before it begins", async () => {
    const { ask, log } = setup();
    const answers = await Promise.all(Array.from({ length: 25 }, () => ask("failures")));
    expect(log).toEqual(["failures"]);
    expect(new Set(answers).size).toBe(1);
  });

  test("run one at a time in the order of the questions, with a rest in between", async () => {
    const { ask, log } = setup();
    await Promise.all([ask("a", 10), ask("b", 30), ask("a", 10), ask("c")]);
    expect(log).toEqual(["a", "rest 50", "b", "rest 150", "c"]);
  });

  test("begin after their question: none has the answer of a read that runs already", async () => {
    const { ask, log } = setup();
    const first = ask("list");
    // Its read runs by now.
    for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
    expect(log).toEqual(["list"]);
    expect(await ask("list")).not.toBe(await first);
    expect(log).toEqual(["list", "list"]);
  });

  test("fail with the read that found no database: each would wait for it as long", async () => {
    const { ask, log } = setup();
    const outage = new StoreError("unavailable", "no answer");
    const failed = await Promise.allSettled([ask("a", 5000, outage), ask("b"), ask("c"), ask("b")]);
    expect(failed).toEqual(Array.from({ length: 4 }, () => ({ status: "rejected", reason: outage })));
    expect(log).toEqual(["a"]);
    await ask("b");
    expect(log).toEqual(["a", "rest 500", "b"]);
  });

  test("are refused while a hundred wait", async () => {
    const { ask } = setup();
    const waiting = Array.from({ length: 100 }, (_, n) => ask(`${n}`));
    await expect(ask("100")).rejects.toMatchObject({ status: 503 });
    await Promise.all([...waiting, ask("99")]);
  });

  test("do not run when all that asked have left, and run when one waits", async () => {
    const { ask, log } = setup();
    const gone = () => true;
    const left = Array.from({ length: 90 }, (_, n) => ask(`left ${n}`, 300, undefined, gone));
    const shared = [ask("shared", 0, undefined, gone), ask("shared")];
    expect(await Promise.all(shared)).toEqual(["shared 1", "shared 1"]);
    expect(log).toEqual(["shared"]);
    for (const { status } of await Promise.allSettled(left)) expect(status).toBe("rejected");
  });
});
