import { once } from "node:events";
import { createConnection } from "node:net";
import { describe, expect, test } from "@jest/globals";
import type { Operations } from "../../../../src/core/operations/operations.ts";
import { createHeavyReads } from "../../../../src/http/admin/heavyReads.ts";
import { adminRoutes } from "../../../../src/http/admin/routes.ts";
import { StoreError } from "../../../../src/model/errors.ts";
import { eventually } from "../../../support/eventually.ts";
import { failOnLeaks } from "../../../support/leaks.ts";
import { ManualClock, recordingLog } from "../../../support/recorders.ts";
import { startHttp } from "../harness.ts";
import { adminOptions } from "./adminOptions.ts";

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

  test("have a rest of half a second at most", async () => {
    const { ask, log } = setup();
    await Promise.all([ask("search", 300), ask("search more")]);
    expect(log).toEqual(["search", "rest 500", "search more"]);
  });

  test("begin after their question: none has the answer of one that runs already", async () => {
    const { ask, log } = setup();
    const first = ask("list");
    // Its read runs by now.
    for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
    expect(log).toEqual(["list"]);
    expect(await ask("list")).not.toBe(await first);
    expect(log).toEqual(["list", "list"]);
  });

  test("fail with the one that found no database, which each would wait for as long", async () => {
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

  test("that fail fail for all that share them, and the next one runs", async () => {
    const { ask, log } = setup();
    const fault = new Error("the database failed");
    const failed = await Promise.allSettled([ask("a", 0, fault), ask("a"), ask("b")]);
    expect(failed.map(({ status }) => status)).toEqual(["rejected", "rejected", "fulfilled"]);
    expect(log).toEqual(["a", "b"]);
  });
});

describe("the admin routes", () => {
  const CALLERS = 25;

  /**
   * The routes over reads that end once so many callers have asked; `begun` counts the reads, `most` is how many ran at a
   * time.
   */
  async function start(callers: number) {
    let [begun, running, most] = [0, 0, 0];
    let asked = 0;
    let release = () => {};
    const gate = new Promise<void>((resolve) => {
      release = resolve;
    });
    const read = async <T>(value: T): Promise<T> => {
      begun += 1;
      running += 1;
      most = Math.max(most, running);
      await gate;
      running -= 1;
      return value;
    };
    const { log } = recordingLog();
    const options = adminOptions(log);
    const http = await startHttp({
      routes: adminRoutes({
        ...options,
        heavyReads(question, read, isGone) {
          asked += 1;
          if (asked === callers) release();
          return options.heavyReads(question, read, isGone);
        },
        ...({
          destinations: { names: [], list: () => read([]) },
          parked: { list: () => read([]) },
          jobs: { preview: () => read({ count: 1, isExact: true, sample: [] }) },
          overview: {
            read: () => read({}),
            failures: () => read({ groups: [], rowsRead: 0, isComplete: true }),
            blockedKeys: () => read([]),
          },
          trace: { list: () => read({ messages: [], cursor: null }) },
        } as unknown as Operations),
        operations: { audit: () => read([]) },
      }),
    });
    return { ...http, counts: () => ({ begun, most }) };
  }

  const READS = [
    "destinations",
    "parked?limit=10000",
    "messages?topic=a",
    "overview?minutes=1440",
    "failures",
    "blocked-keys",
    "audit",
    "replays",
  ];

  test.each(READS)("answer 25 callers of %s at a time with two reads", async (path) => {
    await using http = await start(CALLERS);
    const url = `http://127.0.0.1:${http.data.port}/admin/${path}`;
    const dryRun = { method: "POST", body: '{"topic":"a","dryRun":true}' };
    const callers = Array.from({ length: CALLERS }, () => fetch(url, path === "replays" ? dryRun : {}));
    const answers = await Promise.all(callers);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    expect(http.counts().most).toBe(1);
    expect(http.counts().begun).toBeLessThanOrEqual(2);
  });

  test("read nothing for callers that have left", async () => {
    await using http = await start(3);
    const url = (topic: string) => `http://127.0.0.1:${http.data.port}/admin/messages?topic=${topic}`;
    const first = fetch(url("first"));
    await eventually(() => expect(http.counts().begun).toBe(1));
    const leaving = createConnection(http.data.port, "127.0.0.1");
    leaving.end("GET /admin/messages?topic=left HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await once(leaving.resume(), "finish");
    const answers = await Promise.all([first, fetch(url("last")), once(leaving, "close")]);
    expect([answers[0].status, answers[1].status]).toEqual([200, 200]);
    expect(http.counts().begun).toBe(2);
  });

  test("run different reads one at a time", async () => {
    const paths = READS.filter((path) => path !== "replays");
    await using http = await start(paths.length);
    await Promise.all(paths.map((path) => fetch(`http://127.0.0.1:${http.data.port}/admin/${path}`)));
    expect(http.counts()).toEqual({ begun: paths.length, most: 1 });
  });
});
