import { beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { addTraceCommand } from "../../src/cli/trace.ts";
import { Trace } from "../../src/core/operations/trace.ts";
import { deliveryId } from "../../src/model/deliveries.ts";
import type { MessageId } from "../../src/model/rows.ts";
import type { Store } from "../../src/ports/store.ts";
import { runCommand } from "../support/commands.ts";
import type { TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { databaseCopies, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock } from "../support/recorders.ts";
import { databaseConfig, ordersTo, useServices } from "../support/service.ts";
import { insert, insertDelivered } from "../support/situations.ts";

const services = useServices("block");
const copyOfMigrated = databaseCopies();
failOnLeaks("block");

const WAITING = "state = 'pending'";
const RETRY = "attempt = 2, scheduled_at = now() + interval '1 hour', last_error = 'answered 503'";
const DEAD = "state = 'dead', attempt = 5, last_error = 'answered 410'";
const SENT = "state = 'sent'";

let database: TestDatabase;
let store: Store;
beforeAll(async () => {
  database = await copyOfMigrated();
  services.defer(() => database.drop());
  store = postgresStore(database);
  services.defer(() => store.close());
  await store.schema.checkColumns();
});
beforeEach(() => database.query("TRUNCATE outbox, outbox_history"));

describe("the row of a message that was expanded", () => {
  test("has its deliveries in the order of the list, without deleted ones", async () => {
    const id = await insertDelivered(database, "k", { billing: SENT, audit: RETRY, fraud: DEAD, gone: SENT });
    await database.query("DELETE FROM outbox WHERE id = $1", [deliveryId(id, "gone")]);

    const { outbox, deliveries } = await store.messages.get(id, true);

    expect(outbox).toMatchObject({ expandedTo: ["billing", "audit", "fraud", "gone"], messageId: null });
    expect(deliveries).toMatchObject([
      { id: deliveryId(id, "billing"), destination: "billing", state: "sent", attempt: 0, lastError: null },
      { destination: "audit", state: "pending", attempt: 2, lastError: "answered 503" },
      { destination: "fraud", state: "dead", attempt: 5, lastError: "answered 410", updatedAt: expect.any(Date) },
    ]);
  });

  test("goes nowhere itself, whatever the routes say of its topic", async () => {
    const id = await insertDelivered(database, null, { orders: SENT, bills: SENT });
    await database.query("UPDATE outbox SET topic = 'orders'");

    const { rows } = await store.messages.outboxPage({}, null, 10);
    const found = await store.messages.outboxPage({ destination: "orders" }, null, 10);

    expect(rows).toMatchObject([
      { id: deliveryId(id, "bills"), destination: "bills", expandedTo: null, messageId: id },
      { id: deliveryId(id, "orders"), destination: "orders", expandedTo: null, messageId: id },
      { id, destination: null, expandedTo: 2, messageId: null, state: "sent" },
    ]);
    expect(found.rows).toMatchObject([{ id: deliveryId(id, "orders") }]);
  });
});

test("a delivery has the payload, the headers and so the correlation id of its message", async () => {
  const id = await insertDelivered(database, "k", { billing: WAITING });
  const delivery = deliveryId(id, "billing");

  const { outbox, deliveries } = await store.messages.get(delivery, true);

  expect(outbox).toMatchObject({
    messageId: id,
    expandedTo: null,
    payload: '{"of":"message"}',
    destination: "billing",
  });
  expect(outbox?.headers).toEqual({ "x-correlation-id": "c-4711" });
  expect(deliveries).toEqual([]);
  const { rows } = await store.messages.outboxPage({ correlationId: "c-4711" }, null, 10);
  expect(rows.map((row) => row.id)).toEqual([delivery, id]);
});

describe("the row that a row waits for", () => {
  const rowBefore = async (id: MessageId, destination: string | null) =>
    (await store.messages.rowBefore(id, destination))?.id;

  test("is, of a delivery, a delivery of its key to the same destination, or another row that may go there", async () => {
    const first = await insertDelivered(database, "k", { billing: RETRY, audit: SENT });
    const plain = await insert(database, "k", SENT);
    const second = await insertDelivered(database, "k", { billing: WAITING, audit: WAITING });
    const [billing, audit] = [deliveryId(second, "billing"), deliveryId(second, "audit")];
    // The order is that of the messages.
    await database.query("UPDATE outbox SET sequence = DEFAULT WHERE id = $1", [deliveryId(first, "billing")]);

    expect(await rowBefore(billing, "billing")).toBe(deliveryId(first, "billing"));
    expect(await rowBefore(audit, "audit")).toBeUndefined();
    await database.query("UPDATE outbox SET state = 'pending' WHERE id = $1", [plain]);
    expect(await rowBefore(audit, "audit")).toBe(plain);
    await database.query("UPDATE outbox SET destination = 'billing' WHERE id = $1", [plain]);
    expect(await rowBefore(audit, "audit")).toBeUndefined();
  });

  test("is, of another row, another one of its key, or a delivery to its destination", async () => {
    const message = await insertDelivered(database, "k", { billing: WAITING, audit: WAITING });
    const plain = (await insert(database, "k", "destination = 'else', routes = 'x'")) as MessageId;
    const last = (await insert(database, "k")) as MessageId;

    expect(await rowBefore(plain, "else")).toBeUndefined();
    expect(await rowBefore(plain, "audit")).toBe(deliveryId(message, "audit"));
    expect(await rowBefore(last, "else")).toBe(plain);
    expect(await rowBefore(last, "audit")).toBe(deliveryId(message, "audit"));
    expect(await rowBefore(last, null)).toBe(plain);
  });
});

test("a blocked key has behind it what waits for its first row", async () => {
  const first = await insertDelivered(database, "k", { billing: RETRY, audit: SENT });
  await insertDelivered(database, "k", { billing: WAITING, audit: WAITING });
  await insert(database, "k");
  await insert(database, "k", "destination = 'audit'");

  expect(await store.operations.blockedKeys(10, 10)).toMatchObject([
    { id: deliveryId(first, "billing"), key: "k", destination: "billing", rowsBehind: 2 },
  ]);
});

test("messages are partly dead while one of their deliveries is dead and another one was sent", async () => {
  await insertDelivered(database, "a", { billing: SENT, audit: DEAD, fraud: DEAD });
  const all = await insertDelivered(database, "b", { billing: WAITING, audit: DEAD });
  await insertDelivered(database, "c", { billing: SENT });
  await insert(database, "d", DEAD);

  expect(await store.operations.partlyDead(1000)).toBe(1);
  await database.query("UPDATE outbox SET state = 'sent' WHERE id = $1", [deliveryId(all, "billing")]);
  expect(await store.operations.partlyDead(1000)).toBe(2);
  expect(await store.operations.partlyDead(1)).toBe(0);
});

test("an owner's table without the columns of lists is read as before", async () => {
  await using own = await copyOfMigrated();
  await own.query(
    "ALTER TABLE outbox DROP CONSTRAINT outbox_payload_check, DROP COLUMN message_sequence, DROP COLUMN expanded_to",
  );
  const first = await insert(own, "k", RETRY);
  const second = (await insert(own, "k")) as MessageId;
  const without = postgresStore(own);
  try {
    await without.schema.checkColumns();
    expect(await without.messages.get(second, true)).toMatchObject({ outbox: { expandedTo: null }, deliveries: [] });
    expect(await without.messages.rowBefore(second, "x")).toMatchObject({ id: first });
    expect((await without.messages.outboxPage({}, null, 10)).rows).toMatchObject([{ id: second }, { id: first }]);
    expect(await without.operations.blockedKeys(10, 10)).toMatchObject([{ rowsBehind: 1 }]);
    expect(await without.operations.partlyDead(10)).toBe(0);
  } finally {
    await without.close();
  }
});

describe("svc trace", () => {
  const trace = async (...args: readonly string[]) => {
    const file = services.configFile(ordersTo({ url: "http://127.0.0.1:9" }, { database: databaseConfig(database) }));
    const { error, stdout } = await runCommand(addTraceCommand, ["trace", ...args, "--config", file]);
    if (error !== undefined) throw error;
    return stdout;
  };

  test("of a message shows its deliveries, and why one of the list was not made", async () => {
    const id = await insertDelivered(database, "k", { billing: SENT, audit: SENT, fraud: DEAD });
    await database.query(
      "INSERT INTO outbox_history (outbox_id, event, destination, reason) VALUES ($1, 'skipped', 'large', 'amount > 10 is false')",
      [id],
    );

    const stdout = await trace(id);

    const [head, ...lines] = stdout.split("\n");
    expect(head).toBe(`${id}  sent`);
    expect(lines).toEqual(
      expect.arrayContaining([
        "  deliveries        2 of 3 delivered, 1 dead",
        `    billing: sent (${deliveryId(id, "billing")})`,
        `    fraud: dead, 5 attempts failed (${deliveryId(id, "fraud")}): answered 410`,
      ]),
    );
    expect(stdout).toMatch(/Z {2}not delivered \(to large\): amount > 10 is false$/m);
    expect(stdout).toMatch(/Z {2}expanded to billing, audit, fraud$/m);
    expect(stdout).not.toContain("destination");
    expect(JSON.parse(await trace(id, "--json"))).toMatchObject([
      { destination: null, expandedTo: ["billing", "audit", "fraud"], summary: "2 of 3 delivered, 1 dead" },
    ]);
  });

  test("of a delivery is its own, and names its message", async () => {
    const id = await insertDelivered(database, "k", { billing: DEAD });
    const delivery = deliveryId(id, "billing");

    const stdout = await trace(delivery);

    expect(stdout).toMatch(new RegExp(`^${delivery}  dead, 5 of 5 attempts failed`));
    expect(stdout).toContain(`  delivery of       ${id}\n`);
    expect(stdout).toMatch(/Z {2}dead: answered 410$/m);
  });

  test.each(["k", "c-4711"])("finds the message of deliveries once, by %s", async (text) => {
    const id = await insertDelivered(database, "k", { billing: SENT, audit: SENT });
    expect(JSON.parse(await trace(text, "--json"))).toMatchObject([{ id }]);
  });
});

test.each([
  ["waits to be expanded to billing, audit", null],
  ["no route matches", "orders.created"],
])("a message of a list %s", async (text, unlisted) => {
  const trace = new Trace({
    store,
    settings: {
      destinationOf: () => undefined,
      listOf: (topic) => (topic === unlisted ? undefined : ["billing", "audit"]),
      destinations: {},
      sources: {},
      isRelayEnabled: true,
    },
    hiddenPaths: [],
    secrets: { mask: (masked) => masked },
    clock: new ManualClock(),
  });
  const id = (await insert(database, null)) as MessageId;
  const found = await trace.timeline(id);
  expect(found?.timeline.waits[0]).toMatchObject({ text: expect.stringContaining(text) });
});
