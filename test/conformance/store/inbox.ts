import { describe, expect, test } from "@jest/globals";
import type { InboxStore } from "../../../src/ports/store.ts";
import { type InboxRecord, inboxRow } from "./harness.ts";

type Inserts = { readonly inbox: Pick<InboxStore, "insert" | "insertAllOrNone"> };

/** As much of a store's harness as inserts take. */
export interface InboxHarness extends AsyncDisposable {
  readonly store: Inserts;
  /** Another replica on the same table. */
  replica(): Promise<Inserts>;
  inboxRows(): Promise<readonly Omit<InboxRecord, "attempt" | "claimToken" | "leaseInMs" | "dueInMs">[]>;
}

export function exerciseInbox(open: () => Promise<InboxHarness>): void {
  describe("inbox receipt", () => {
    test("stores a batch and answers for each row in the order given", async () => {
      await using harness = await open();
      const rows = [inboxRow(), inboxRow(), inboxRow()];

      expect(await harness.store.inbox.insert(rows)).toEqual([
        { kind: "stored" },
        { kind: "stored" },
        { kind: "stored" },
      ]);

      expect((await harness.inboxRows()).map((row) => row.id).sort()).toEqual(rows.map((row) => row.id));
    });

    test("an empty batch stores nothing", async () => {
      await using harness = await open();

      expect(await harness.store.inbox.insert([])).toEqual([]);
    });

    test("the first of two rows with one idempotency key in a batch is stored, the second is a duplicate", async () => {
      await using harness = await open();
      const first = inboxRow({ idempotencyKey: "same", payload: "1" });
      const second = inboxRow({ idempotencyKey: "same", payload: "2" });

      expect(await harness.store.inbox.insert([first, second])).toEqual([{ kind: "stored" }, { kind: "duplicate" }]);

      expect((await harness.inboxRows()).map((row) => row.payload)).toEqual(["1"]);
    });

    test("a row that is there already is a duplicate and is not changed", async () => {
      await using harness = await open();
      await harness.store.inbox.insert([inboxRow({ idempotencyKey: "same", payload: "1" })]);

      const outcomes = await harness.store.inbox.insert([
        inboxRow({ idempotencyKey: "same", payload: "2" }),
        inboxRow(),
      ]);

      expect(outcomes).toEqual([{ kind: "duplicate" }, { kind: "stored" }]);
      expect((await harness.inboxRows()).map((row) => row.payload)).toContain("1");
      expect((await harness.inboxRows()).map((row) => row.payload)).not.toContain("2");
    });

    test.each(["insert", "insertAllOrNone"] as const)(
      "%s takes thousands of rows, duplicates among them",
      async (how) => {
        await using harness = await open();
        await harness.store.inbox.insert([inboxRow({ idempotencyKey: "5" })]);
        const rows = Array.from({ length: 3000 }, (_, n) => inboxRow({ idempotencyKey: String(n % 2000) }));

        const outcomes = await harness.store.inbox[how](rows);

        const expected = rows.map((_, n) => ({ kind: n === 5 || n >= 2000 ? "duplicate" : "stored" }));
        expect(outcomes).toEqual(expected);
        expect(await harness.inboxRows()).toHaveLength(2000);
      },
    );

    test("the same key of another source is another message", async () => {
      await using harness = await open();

      const outcomes = await harness.store.inbox.insert([
        inboxRow({ idempotencyKey: "same", source: "orders" }),
        inboxRow({ idempotencyKey: "same", source: "payments" }),
      ]);

      expect(outcomes).toEqual([{ kind: "stored" }, { kind: "stored" }]);
    });

    test("keeps what tells the rows of a batch apart, and tells the duplicates among them", async () => {
      await using harness = await open();
      await harness.store.inbox.insert([inboxRow({ idempotencyKey: "old", source: "payments" })]);
      const rows = [
        inboxRow({ idempotencyKey: "a", source: "orders", state: "dead", lastError: "no JSON" }),
        inboxRow({ idempotencyKey: "old", source: "payments", consumption: "pull" }),
        inboxRow({ idempotencyKey: "old", source: "orders", aggregateId: "7" }),
        inboxRow({ idempotencyKey: "b", source: "payments", consumption: "pull" }),
      ];

      const outcomes = await harness.store.inbox.insert(rows);

      expect(outcomes.map(({ kind }) => kind)).toEqual(["stored", "duplicate", "stored", "stored"]);
      const stored = new Map((await harness.inboxRows()).map((row) => [row.id, row]));
      for (const row of rows.filter((_, i) => outcomes[i]?.kind === "stored")) {
        const { id, source, state, consumption, lastError, aggregateId, payload } = row;
        expect(stored.get(id)).toMatchObject({ source, state, consumption, lastError, aggregateId, payload });
      }
      expect(stored.size).toBe(4);
    });

    test.each([
      ["numbers beyond a double and their spelling", '{"a":12345678901234567890,"b":1.0,"c":1e2}'],
      ["the order and repetition of keys", '{"b":1,"a":2,"b":3}'],
      ["escapes", '{"nul":"\\u0000","lone":"\\ud800","slash":"\\/"}'],
      ["every plane of Unicode", '{"text":"é 漢 \u{1F600} \u2028 \u200d"}'],
      ["white space around and inside", ' { "a" :\n\t1 }\r\n'],
      ["quotes, backslashes, braces and commas of array literals", '{"a":"\\"\\\\{},NULL\'"}'],
      ["the word NULL", "NULL"],
      ["an empty text", ""],
    ])("keeps %s", async (_, payload) => {
      await using harness = await open();

      await harness.store.inbox.insert([inboxRow({ payload, headers: { "X-Q": payload.replaceAll("\u0000", "") } })]);

      const [row] = await harness.inboxRows();
      expect(row?.payload).toBe(payload);
      expect(row?.headers).toEqual({ "X-Q": payload });
    });

    test("keeps a payload of a mebibyte", async () => {
      await using harness = await open();
      const payload = `"${"x".repeat(1024 * 1024 - 2)}"`;

      await harness.store.inbox.insert([inboxRow({ payload })]);

      expect((await harness.inboxRows())[0]?.payload).toBe(payload);
    });

    test("keeps a dead row as evidence", async () => {
      await using harness = await open();

      await harness.store.inbox.insert([inboxRow({ state: "dead", lastError: "the body is not JSON" })]);

      const [row] = await harness.inboxRows();
      expect(row).toMatchObject({ state: "dead", processed: true, lastError: "the body is not JSON" });
    });

    test("batches that meet each other's keys in opposite order neither deadlock nor store a key twice", async () => {
      await using harness = await open();
      const other = await harness.replica();
      const keys = Array.from({ length: 200 }, (_, n) => `key-${n}`);

      const rounds = Array.from({ length: 30 }, (_, n) => {
        const order = n % 2 === 0 ? keys : keys.toReversed();
        const store = n % 2 === 0 ? harness.store : other;
        return store.inbox.insert(order.map((idempotencyKey) => inboxRow({ idempotencyKey })));
      });
      const outcomes = (await Promise.all(rounds)).flat();

      expect(outcomes.filter((outcome) => outcome.kind === "stored")).toHaveLength(keys.length);
      expect(await harness.inboxRows()).toHaveLength(keys.length);
    });
  });
}
