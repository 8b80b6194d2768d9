import { beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { type ConfigTree, databaseConfig, merged, ordersTo, useServices } from "../support/service.ts";

const services = useServices("block");
failOnLeaks("block");

interface Page {
  readonly messages: readonly { readonly id: string }[];
  readonly filtered?: readonly { readonly idempotencyKey: string | null; readonly correlationId: string | null }[];
}

const NOBODY = { url: "http://127.0.0.1:9" };
const DROPPED = { "x-test": "1" };

type Filtering = Awaited<ReturnType<typeof filtering>>;

/** A service whose source drops messages with the header `X-Test`; it delivers nothing. */
async function filtering(overrides: ConfigTree = {}) {
  const database = await services.database();
  const filter = { exclude: [{ header: "X-Test", exists: true }] };
  const config = merged(
    ordersTo(NOBODY, { admin: { enabled: true, insecure: true }, sources: { orders: { filter } } }),
    overrides,
  );
  const service = await services.start({ database, config, roles: ["ingest", "admin"] });
  const list = async (query: string) => (await service.get(`/admin/messages?${query}`)).json() as Page;
  return { database, config, service, list };
}

async function trace(database: TestDatabase, config: ConfigTree, ...args: readonly string[]) {
  const file = services.configFile(merged(config, { database: databaseConfig(database) }));
  const child = services.processes.svc(["trace", ...args, "--config", file], { env: { LOG_LEVEL: "warn" } });
  const { code } = await child.exited;
  return { code, stdout: child.stdout.join("\n"), stderr: child.stderr.join("\n") };
}

const entries = async (database: TestDatabase) =>
  await database.query("SELECT outcome, idempotency_key, correlation_id FROM outbox_journal ORDER BY id");

describe("a message that leaves no row", () => {
  let plain: Filtering;
  beforeAll(async () => {
    plain = await filtering();
  });
  beforeEach(async () => {
    for (const table of ["outbox", "inbox", "outbox_journal"]) await plain.database.query(`DELETE FROM ${table}`);
  });

  test("because a filter dropped it is found by its key and its correlation id", async () => {
    const { database, config, service, list } = plain;
    const headers = { ...DROPPED, "x-correlation-id": "c-1" };
    const answer = await service.post({ id: "order-1", key: "k", type: "created" }, { headers });
    expect([answer.status, answer.json()]).toEqual([202, { status: "filtered" }]);
    await eventually(async () => expect(await entries(database)).toHaveLength(1));

    const dropped = {
      at: expect.stringMatching(/^\d{4}-.*Z$/),
      source: "orders",
      idempotencyKey: "order-1",
      correlationId: "c-1",
      replica: expect.any(String),
    };
    for (const query of ["idempotencyKey=order-1", "correlationId=c-1", "idempotencyKey=order-1&source=orders"]) {
      expect([query, await list(query)]).toEqual([query, { messages: [], filtered: [dropped], cursor: null }]);
    }
    for (const query of [
      "idempotencyKey=order-1&source=other",
      "idempotencyKey=order-1&state=dead",
      "idempotencyKey=order-1&createdAfter=2100-01-01T00:00:00Z",
      "idempotencyKey=order-1&correlationId=c-2",
      "idempotencyKey=order-2",
    ]) {
      expect([query, (await list(query)).filtered]).toEqual([query, []]);
    }
    expect(await list("key=k")).toEqual({ messages: [], cursor: null });

    const { code, stdout } = await trace(database, config, "order-1");
    expect([code, stdout]).toEqual([0, expect.stringContaining("received from orders and dropped by the filter")]);
    const json = await trace(database, config, "c-1", "--json");
    expect(JSON.parse(json.stdout)).toEqual([{ state: "filtered", ...dropped }]);
  });

  test("because it is a duplicate is found in the timeline of the first one", async () => {
    const { database, config, service } = plain;
    const message = { id: "order-1", key: "k", type: "created" };
    for (let n = 0; n <= 22; n += 1) {
      const { status } = await service.post(message, { headers: { "x-correlation-id": `c-${n}` } });
      expect(status).toBe(n === 0 ? 202 : 200);
    }
    await eventually(async () => expect(await entries(database)).toHaveLength(22));
    const [row] = await database.query("SELECT id FROM inbox");

    const shown = (await service.get(`/admin/messages/${row?.id}`)).json() as {
      duplicates: number;
      events: readonly { event: string; text: string }[];
    };
    expect(shown.duplicates).toBe(22);
    const again = shown.events.filter(({ event }) => event === "duplicate");
    expect([shown.events[0]?.event, again.length]).toEqual(["received", 20]);
    expect(again.at(-1)?.text).toBe("received again from orders as a duplicate, correlation id c-22");

    const { code, stdout } = await trace(database, config, "c-21");
    expect([code, stdout]).toEqual([0, expect.stringMatching(new RegExp(`^${row?.id}  pending`))]);
    expect(stdout).toContain("duplicates        22 in the last 24 hours");
    expect(stdout).toContain("received again from orders as a duplicate, correlation id c-21");
  });

  test("is not kept with outbox.history: off", async () => {
    const { database, service } = await filtering({ outbox: { history: "off" } });
    await service.post({ id: "order-1", key: "k", type: "created" }, { headers: DROPPED });
    expect((await service.stop()).code).toBe(0);
    expect(await entries(database)).toEqual([]);
  });

  test("is not kept without the table, which fails no message and no trace", async () => {
    const { database, config, service, list } = plain;
    // No test of this block may follow.
    await database.query("DROP TABLE outbox_journal");
    const message = { id: "order-1", key: "k", type: "created" };
    expect((await service.post(message)).status).toBe(202);
    expect((await service.post(message)).status).toBe(200);
    expect((await service.post({ ...message, id: "order-2" }, { headers: DROPPED })).status).toBe(202);
    await eventually(() => expect(service.process.stdout.join("\n")).toContain("the journal cannot be used"));
    expect(service.process.stdout.join("\n")).toContain("011.do.journal.sql");
    const [row] = await database.query("SELECT id FROM inbox");
    expect((await service.get(`/admin/messages/${row?.id}`)).json()).toMatchObject({ duplicates: null });
    expect((await list("idempotencyKey=order-2")).filtered).toEqual([]);
    expect((await trace(database, config, "order-1")).code).toBe(0);
    expect((await service.stop()).code).toBe(0);
  });
});

describe("a message that leaves no row, if fields are hidden", () => {
  const SECRET = "planted-secret-4711";
  const CARD = "4111-1111-2222-3333";
  let hiding: Filtering;
  beforeAll(async () => {
    const auth = { token: SECRET };
    hiding = await filtering({ admin: { insecure: false, auth, redactPayloadPaths: ["$.card"] } });
  });
  beforeEach(async () => {
    for (const table of ["outbox", "inbox", "outbox_journal"]) await hiding.database.query(`DELETE FROM ${table}`);
  });

  test("shows no secret, and no key that may be a hidden field", async () => {
    const { database, config, service } = hiding;
    const body = { id: CARD, card: CARD, key: "k", type: "created" };
    await service.post(body, { headers: { ...DROPPED, "x-correlation-id": `c-${SECRET}` } });
    await service.post({ ...body, id: `k-${SECRET}` }, { headers: { ...DROPPED, "x-correlation-id": "c-2" } });
    await service.post({ ...body, id: "first" });
    await service.post({ ...body, id: "first" }, { headers: { "x-correlation-id": CARD } });
    await eventually(async () => expect(await entries(database)).toHaveLength(3));
    const [row] = await database.query("SELECT id FROM inbox");
    const get = async (path: string) => {
      const url = `http://127.0.0.1:${service.port}/admin/messages${path}`;
      return await (await fetch(url, { headers: { authorization: `Bearer ${SECRET}` } })).text();
    };
    const byKey = await get(`?idempotencyKey=${CARD}`);
    expect(JSON.parse(byKey)).toMatchObject({ filtered: [{ idempotencyKey: CARD, correlationId: "***" }] });
    const seen = [
      await get("?correlationId=c-2"),
      await get(`/${row?.id}`),
      (await trace(database, config, "c-2")).stdout,
      (await trace(database, config, "c-2", "--json")).stdout,
      (await trace(database, config, "first")).stdout,
    ];
    for (const text of seen) {
      expect(text).toMatch(/orders/);
      expect(text).not.toContain(CARD);
    }
    for (const text of [...seen, byKey, service.process.stdout.join("\n")]) expect(text).not.toContain(SECRET);
  });
});
