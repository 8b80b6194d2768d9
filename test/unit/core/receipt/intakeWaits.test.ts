import { describe, expect, test } from "@jest/globals";
import { StoppingError, StoreError } from "../../../../src/model/errors.ts";
import { MemoryInbox } from "../../../support/memoryInbox.ts";
import { message, setup } from "./intakeSetup.ts";

describe("while the database is away", () => {
  test("messages wait, longer from one try to the next, and are stored when it is back", async () => {
    const store = new MemoryInbox();
    store.fault = { reject: new StoreError("unavailable", "inbox.insert: no connection") };
    const waits: number[] = [];
    const { take, lines, calls } = setup({
      insert: (rows) => store.insert(rows),
      async wait(ms) {
        waits.push(ms);
        if (waits.length === 9) store.fault = undefined;
      },
    });
    await take(message('{"id":1}'));
    expect(waits).toEqual([100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
    expect(store.rows).toHaveLength(1);
    expect(lines[0]).toMatchObject({ level: "warn", fields: { reason: "inbox.insert: no connection" } });
    expect(calls).toEqual(["inboxMessages(new, 1)"]);
  });

  test("of one cell, only its messages are tried again", async () => {
    const store = new MemoryInbox();
    const inserts: string[][] = [];
    const { take, lines, waits, calls } = setup({
      insert: async (rows) => {
        inserts.push(rows.map(({ idempotencyKey }) => idempotencyKey));
        const isAway = (key: string) => key === "2" && inserts.length < 3;
        const outcomes = await store.insert(rows.filter(({ idempotencyKey }) => !isAway(idempotencyKey)));
        let n = 0;
        return rows.map(({ idempotencyKey }) =>
          isAway(idempotencyKey)
            ? { kind: "unavailable", reason: "cell b is away" }
            : (outcomes[n++] ?? { kind: "stored" }),
        );
      },
    });
    await take(message('{"id":1}'), message('{"id":2}'), message('{"id":3}'));
    expect(inserts).toEqual([["1", "2", "3"], ["2"], ["2"]]);
    expect(waits).toHaveLength(2);
    expect(lines[0]).toMatchObject({ level: "warn", fields: { reason: "cell b is away" } });
    expect(calls).toEqual(Array(3).fill("inboxMessages(new, 1)"));
  });

  test("a stop ends the waiting with its reason, and nothing was taken", async () => {
    const { intake, store } = setup();
    store.fault = { reject: new StoreError("unavailable", "gone") };
    const stopping = new AbortController();
    const reason = new StoppingError();
    const release = store.hold();
    const taken = intake.take([message('{"id":1}')], stopping.signal);
    stopping.abort(reason);
    release();
    await expect(taken).rejects.toBe(reason);
    expect(store.rows).toEqual([]);
  });

  test("an expression that cannot be run is waited for: its path would give another key", async () => {
    let attempts = 0;
    const { take, store, waits } = setup({
      expressions: async ({ text }) => {
        attempts += 1;
        if (attempts <= 2) return { kind: "unavailable", reason: "no worker" };
        return { kind: "computed", values: { idempotencyKey: `e-${JSON.parse(text).id}` } };
      },
    });
    await take(message('{"id":1}'), message('{"id":2}'));
    expect(waits).toHaveLength(1);
    expect(store.rows.map(({ idempotencyKey }) => idempotencyKey)).toEqual(["e-1", "e-2"]);
  });

  test("a transform that cannot be run is waited for, and the order stays", async () => {
    const failed = new Set<string>();
    const { take, store, waits } = setup({
      async stage(body) {
        if (body.includes("1") && failed.size === 0) {
          failed.add(body);
          return { kind: "unavailable", reason: "no worker" };
        }
        return { kind: "unchanged" };
      },
    });
    await take(message('{"id":1}'), message('{"id":2}'));
    expect(waits).toHaveLength(1);
    expect(store.rows.map(({ idempotencyKey }) => idempotencyKey)).toEqual(["1", "2"]);
    const ids = store.rows.map(({ id }) => id);
    expect(ids).toEqual([...ids].sort());
  });
});
