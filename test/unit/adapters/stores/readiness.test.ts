import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterEach, describe, expect, test } from "@jest/globals";
import { untilAnswered } from "../../../../src/adapters/stores/sql/store.ts";
import { ManualClock, silentLog } from "../../../support/recorders.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** Never settles, and holds on to nothing that waits for it. */
const unanswered = () => new Promise<void>(() => {});

describe("the wait for a database", () => {
  let collecting: NodeJS.Timeout | undefined;
  afterEach(() => clearInterval(collecting));

  test("ends in time although the memory is collected meanwhile", async () => {
    collecting = setInterval(collectGarbage, 10);
    const waiting = untilAnswered(unanswered, 200, new AbortController().signal, new ManualClock(), silentLog);
    await expect(waiting).rejects.toThrow("no database answered within 200 ms");
  });

  test("ends at once by its signal, aborted before or meanwhile", async () => {
    const stopping = new AbortController();
    const waiting = untilAnswered(unanswered, 60_000, stopping.signal, new ManualClock(), silentLog);
    const reason = new Error("stopping");
    stopping.abort(reason);
    await expect(waiting).rejects.toBe(reason);
    await expect(untilAnswered(unanswered, 60_000, stopping.signal, new ManualClock(), silentLog)).rejects.toBe(reason);
  });
});
