import { describe, expect, test } from "@jest/globals";
import type { InsertResult, NewInboxRow } from "../../../../src/model/rows.ts";
import { MemoryInbox } from "../../../support/memoryInbox.ts";
import { digest, message, setup } from "./intakeSetup.ts";

const POISON_IN_BASE64 = Buffer.from('{"id":2,"poison":1}').toString("base64");

const REFUSED = ["inboxRejection(extraction_failed)", "inboxDead(extraction_failed)"];

describe("a message that can never be accepted", () => {
  const text = "no JSON: hunter2";
  const bytes = Buffer.from([0xff, 0xfe, 0x00]);

  test.each<[string, Buffer, string, string]>([
    ["a body that is no JSON", Buffer.from(text), text, "the body is not a JSON document in UTF-8"],
    ["an empty body", Buffer.alloc(0), "", "the body is not a JSON document in UTF-8"],
    [
      "bytes that are no UTF-8",
      bytes,
      bytes.toString("base64"),
      "the body is not a JSON document in UTF-8; the payload is its bytes in base64",
    ],
    [
      "a NUL",
      Buffer.from("a\0"),
      "YQA=",
      "the body is not a JSON document in UTF-8; the payload is its bytes in base64",
    ],
  ])("for %s is stored dead with all there is", async (_, body, payload, lastError) => {
    const { take, store, calls, lines } = setup();
    await take(message(body, { headers: { "x-event-type": "t" } }), message('{"id":2}'));
    const [dead, next] = store.rows;
    expect(dead).toMatchObject({
      state: "dead",
      payload,
      lastError,
      idempotencyKey: digest(body),
      eventType: "t",
      headers: { "x-event-type": "t" },
    });
    expect(next?.state).toBe("pending");
    expect(calls).toEqual([...REFUSED, "inboxMessages(new, 1)"]);
    expect(lines).toMatchObject([{ level: "warn", fields: { source: "events", id: dead?.id } }]);
    expect(JSON.stringify(lines)).not.toContain("hunter2");
  });

  test("because of its aggregate id is stored dead without it", async () => {
    const { take, store } = setup();
    await take(message('{"id":1}', { recordKey: "k".repeat(2000) }));
    expect(store.rows[0]).toMatchObject({ state: "dead", idempotencyKey: "1", aggregateId: null, payload: '{"id":1}' });
    expect(store.rows[0]?.lastError).toContain("2000 characters");
  });

  test("because its transform rejects it is stored dead with the body that came, and a clean reason", async () => {
    const { take, store, calls } = setup({
      stage: async () => ({ kind: "rejected", reason: "cannot use hunter2" }),
    });
    await take(message('{ "id":1 }'));
    expect(store.rows[0]).toMatchObject({ state: "dead", payload: '{ "id":1 }', lastError: "cannot use ***" });
    expect(calls).toEqual(["inboxRejection(transform_failed)", "inboxDead(transform_failed)"]);
  });

  test("is a duplicate when it comes again", async () => {
    const { take, store, calls } = setup();
    await take(message("x"));
    await take(message("x"));
    expect(store.rows).toHaveLength(1);
    expect(calls).toEqual([...REFUSED, "inboxMessages(duplicate, 1)"]);
  });
});

describe("a message that the database refuses", () => {
  /** An insert that refuses the rows for which `refuses` is true. */
  const choosy =
    (store: MemoryInbox, refuses: (row: NewInboxRow) => boolean) => async (rows: readonly NewInboxRow[]) => {
      const taken = await store.insert(rows.filter((row) => !refuses(row)));
      let next = 0;
      return rows.map(
        (row): InsertResult =>
          refuses(row) ? { kind: "refused", reason: "value too long" } : (taken[next++] ?? { kind: "duplicate" }),
      );
    };

  test("is stored dead, and its neighbours go their way", async () => {
    const store = new MemoryInbox();
    const { take, calls } = setup({
      insert: choosy(store, (row) => row.state === "pending" && row.idempotencyKey === "2"),
    });
    await take(message('{"id":1}'), message('{"id":2}'), message('{"id":3}'));
    expect(store.rows.map(({ idempotencyKey, state }) => [idempotencyKey, state])).toEqual([
      ["1", "pending"],
      ["3", "pending"],
      ["2", "dead"],
    ]);
    expect(store.rows[2]).toMatchObject({
      payload: '{"id":2}',
      lastError: "the database cannot hold this message: value too long",
    });
    expect(calls.slice(-2)).toEqual(["inboxRejection(storage_failed)", "inboxDead(storage_failed)"]);
  });

  test("also as a dead row is stored as a row that any table can hold", async () => {
    const store = new MemoryInbox();
    const { take } = setup({ insert: choosy(store, (row) => row.payload.startsWith("{") || row.eventType !== null) });
    await take(message('{"id":1}', { headers: { "x-event-type": "t" } }));
    expect(store.rows).toMatchObject([
      { state: "dead", payload: `"${Buffer.from('{"id":1}').toString("base64")}"`, headers: {}, eventType: null },
    ]);
  });

  test("whatever it becomes is returned, to stay with the broker, and holds up no others", async () => {
    const refused: number[] = [];
    const { take, store, lines, calls } = setup({
      async insert(rows) {
        const isPoison = (row: NewInboxRow) => row.payload.includes("poison") || row.payload.includes(POISON_IN_BASE64);
        refused.push(rows.filter(isPoison).length);
        const stored = await store.insert(rows.filter((row) => !isPoison(row)));
        return rows.map((row) =>
          isPoison(row) ? { kind: "refused", reason: "P0001 hunter2" } : (stored[0] as InsertResult),
        );
      },
    });
    const poison = message('{"id":2,"poison":1}');
    expect(await take(message('{"id":1}'), poison, message('{"id":3}'))).toEqual([poison]);
    expect(store.rows.map(({ payload }) => payload)).toEqual(['{"id":1}', '{"id":3}']);
    // Unchanged, as a dead row, and as a plain row under its key.
    expect(refused).toEqual([1, 1, 1]);
    expect(calls).toContain("inboxRejection(storage_failed)");
    expect(lines).toEqual([
      expect.objectContaining({ level: "error", fields: { source: "events", messages: 1, reason: "P0001 ***" } }),
    ]);
    expect(await take(poison)).toEqual([poison]);
  });
});

describe("a message with an unreadable part", () => {
  test("is stored as a dead row with its reason, its body and what its broker tells", async () => {
    const { take, store, calls } = setup();
    const origin = { "x-amqp-properties": "AQI=" };
    expect(await take(message('{"id":1}', { undecodable: "the AMQP properties cannot be read", origin }))).toEqual([]);
    expect(store.rows).toMatchObject([
      {
        state: "dead",
        payload: '{"id":1}',
        idempotencyKey: "1",
        headers: { "x-amqp-properties": "AQI=" },
        lastError: "the AMQP properties cannot be read",
      },
    ]);
    expect(calls).toEqual(REFUSED);
  });
});
