import { describe, expect, test } from "@jest/globals";
import { inboxRow, relayRequest, type StoreHarness } from "./harness.ts";

export function exerciseRelay(open: () => Promise<StoreHarness>): void {
  describe("relay", () => {
    test("copies a push row into the outbox under the same id and marks it processed", async () => {
      await using harness = await open();
      const row = inboxRow({ aggregateId: "order-1", eventType: "created", payload: '{"a":1.0}' });
      await harness.store.inbox.insert([row]);

      const result = await harness.store.inbox.relay(relayRequest({ maxAttempts: 7 }));

      expect(result).toEqual({ relayed: 1, dead: [], more: false });
      expect(await harness.outboxRows()).toMatchObject([
        {
          id: row.id,
          topic: "orders.created",
          key: "order-1",
          payload: '{"a":1.0}',
          state: "pending",
          attempt: 0,
          maxAttempts: 7,
        },
      ]);
      expect(await harness.inboxRows()).toMatchObject([{ state: "processed", processed: true }]);
    });

    test("headers travel on without the dropped ones, and with headers that identify the message", async () => {
      await using harness = await open();
      const row = inboxRow({
        headers: {
          traceparent: "00-abc",
          "X-Custom": "kept",
          Host: "dropped",
          "ACCEPT-Encoding": "dropped",
          "X-Source": "forged",
          "Content-Type": "text/plain",
        },
      });
      await harness.store.inbox.insert([row]);

      await harness.store.inbox.relay(relayRequest());

      expect((await harness.outboxRows())[0]?.headers).toEqual({
        traceparent: "00-abc",
        "X-Custom": "kept",
        "x-correlation-id": row.correlationId,
        "x-inbox-id": row.id,
        "x-source": "orders",
        "x-idempotency-key": row.idempotencyKey,
      });
    });

    test("the context of the receipt takes the place of the received one, and the result has it", async () => {
      await using harness = await open();
      const rows = [
        inboxRow({
          headers: { Traceparent: "00-sender", TraceState: "s=1", "svc-traceparent": "00-receipt", "x-a": "b" },
        }),
        inboxRow({ headers: { traceparent: "00-1", "svc-traceparent": "00-2", "svc-tracestate": "t=2" } }),
        inboxRow({ headers: { traceparent: "00-untraced", tracestate: "u=3" } }),
        inboxRow({ headers: {} }),
      ];
      await harness.store.inbox.insert(rows);

      const { traces } = await harness.store.inbox.relay(relayRequest());

      expect([...(traces ?? [])].sort()).toEqual(["00-2", "00-receipt", "00-untraced"]);
      const relayed = new Map((await harness.outboxRows()).map(({ id, headers }) => [id, headers]));
      const own = rows.map(({ id }) =>
        Object.entries(relayed.get(id) ?? {}).filter(([name]) => !/^x-(corr|inbox|source|idem)/.test(name)),
      );
      expect(own.map((entries) => Object.fromEntries(entries))).toEqual([
        { traceparent: "00-receipt", "x-a": "b" },
        { traceparent: "00-2", tracestate: "t=2" },
        { traceparent: "00-untraced", tracestate: "u=3" },
        {},
      ]);
    });

    test("a content type that names JSON travels on", async () => {
      await using harness = await open();
      await harness.store.inbox.insert([inboxRow({ headers: { "Content-Type": "application/cloudevents+json" } })]);

      await harness.store.inbox.relay(relayRequest());

      expect((await harness.outboxRows())[0]?.headers["Content-Type"]).toBe("application/cloudevents+json");
    });

    test.each<[string, readonly string[], string | null, string]>([
      ["a literal topic", ["orders"], "created", "orders"],
      ["the event type alone", ["", ""], "created", "created"],
      ["the event type twice", ["a.", ".", ".b"], "x", "a.x.x.b"],
      ["white space around the result, which goes", ["  ", " \t\n"], " created ", "created"],
      ["an event type that looks like a template", ["t.", ""], "{{ source }}", "t.{{ source }}"],
      ["no event type", ["orders.", ""], null, "orders."],
    ])("renders %s", async (_, pieces, eventType, topic) => {
      await using harness = await open();
      await harness.store.inbox.insert([inboxRow({ eventType })]);

      await harness.store.inbox.relay(relayRequest({ topics: { orders: pieces } }));

      expect((await harness.outboxRows()).map((row) => row.topic)).toEqual([topic]);
    });

    test("a topic that renders empty makes the row dead, with the reason on it", async () => {
      await using harness = await open();
      const row = inboxRow({ eventType: "  " });
      await harness.store.inbox.insert([row, inboxRow()]);

      const result = await harness.store.inbox.relay(relayRequest({ topics: { orders: ["", ""] } }));

      expect(result.relayed).toBe(1);
      expect(result.dead).toEqual([{ id: row.id, source: "orders", reason: expect.stringContaining("empty") }]);
      expect((await harness.inboxRows()).find((each) => each.id === row.id)).toMatchObject({
        state: "dead",
        lastError: expect.stringContaining("empty"),
      });
    });

    test("pull rows, dead rows and rows of a source that is not named stay unchanged", async () => {
      await using harness = await open();
      await harness.store.inbox.insert([
        inboxRow({ consumption: "pull" }),
        inboxRow({ state: "dead" }),
        inboxRow({ source: "unknown" }),
      ]);

      expect(await harness.store.inbox.relay(relayRequest())).toEqual({ relayed: 0, dead: [], more: false });

      expect((await harness.inboxRows()).map((row) => row.state).sort()).toEqual(["dead", "pending", "pending"]);
      expect(await harness.outboxRows()).toEqual([]);
    });

    test("oldest first, a batch at a time, and says when more wait", async () => {
      await using harness = await open();
      const rows = Array.from({ length: 5 }, () => inboxRow());
      for (const row of rows) await harness.store.inbox.insert([row]);

      const first = await harness.store.inbox.relay(relayRequest({ limit: 3 }));
      const second = await harness.store.inbox.relay(relayRequest({ limit: 3 }));

      expect(first).toMatchObject({ relayed: 3, more: true });
      expect(second).toMatchObject({ relayed: 2, more: false });
      expect((await harness.outboxRows()).map((row) => row.id)).toEqual(rows.map((row) => row.id));
    });

    test("relays that run at once copy each row once and keep the order of each aggregate", async () => {
      await using harness = await open();
      const replicas = await Promise.all(Array.from({ length: 5 }, () => harness.replica()));
      const rows = Array.from({ length: 600 }, (_, n) =>
        inboxRow({ aggregateId: `aggregate-${n % 7}`, payload: String(n) }),
      );
      for (let at = 0; at < rows.length; at += 50) await harness.store.inbox.insert(rows.slice(at, at + 50));

      const stores = [harness.store, ...replicas];
      await Promise.all(
        stores.map(async (store) => {
          for (let idle = 0; idle < 3; ) {
            const { relayed } = await store.inbox.relay(relayRequest({ limit: 20 }));
            if (relayed === 0) idle += 1;
            else idle = 0;
          }
        }),
      );
      // A relay stands back from an aggregate that another one is working on, so the last rows may take one more pass.
      while ((await harness.store.inbox.relay(relayRequest())).relayed > 0);

      const relayed = await harness.outboxRows();
      expect(relayed.map((row) => Number(row.payload)).sort((a, b) => a - b)).toEqual(rows.map((_, n) => n));
      for (let aggregate = 0; aggregate < 7; aggregate += 1) {
        const payloads = relayed
          .filter((row) => row.key === `aggregate-${aggregate}`)
          .map((row) => Number(row.payload));
        expect(payloads).toEqual(payloads.toSorted((a, b) => a - b));
      }
    });

    test("rows of a source that is not relayed hold no row of another source back, and are counted", async () => {
      await using harness = await open();
      const { inbox } = harness.store;
      await inbox.insert([inboxRow({ source: "gone", aggregateId: "a" })]);
      await inbox.insert([
        inboxRow({ source: "gone", aggregateId: "b" }),
        inboxRow({ source: "went", aggregateId: "a" }),
      ]);
      const rows = [inboxRow({ aggregateId: "a" }), inboxRow({ aggregateId: "b" })];
      await inbox.insert(rows);

      expect(await inbox.unrelayed(["orders"], 2)).toEqual([{ source: "gone", count: 2 }]);
      expect(await inbox.relay(relayRequest())).toEqual({ relayed: 2, dead: [], more: false });

      expect((await harness.outboxRows()).map((row) => row.id)).toEqual(rows.map((row) => row.id));
      expect(await inbox.unrelayed(["orders"], 100)).toEqual([
        { source: "gone", count: 2 },
        { source: "went", count: 1 },
      ]);
      expect(await inbox.unrelayed([], 100)).toHaveLength(2);
      expect(await inbox.unrelayed(["gone", "went"], 100)).toEqual([]);
      expect(await inbox.oldestPendingAgeMs(["orders"])).toBeNull();
      expect(await inbox.oldestPendingAgeMs([])).toBeNull();
    });

    test("the key of a source with keys of its own has the source in front, if there is an aggregate", async () => {
      await using harness = await open();
      const rows = [
        inboxRow({ aggregateId: "a" }),
        inboxRow({ source: "own", aggregateId: "a" }),
        inboxRow({ source: "own", aggregateId: null }),
      ];
      for (const row of rows) await harness.store.inbox.insert([row]);

      await harness.store.inbox.relay(relayRequest({ topics: { orders: ["t"], own: ["t"] }, ownKeySources: ["own"] }));

      expect((await harness.outboxRows()).map((row) => row.key)).toEqual(["a", "own:a", null]);
    });

    test("the age of the oldest waiting row is known, and null when none waits", async () => {
      await using harness = await open();
      expect(await harness.store.inbox.oldestPendingAgeMs(["orders"])).toBeNull();

      await harness.store.inbox.insert([inboxRow()]);

      expect(await harness.store.inbox.oldestPendingAgeMs(["orders"])).toBeGreaterThanOrEqual(0);
      await harness.store.inbox.relay(relayRequest());
      expect(await harness.store.inbox.oldestPendingAgeMs(["orders"])).toBeNull();
    });
  });
}
