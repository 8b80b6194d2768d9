import { randomUUID } from "node:crypto";
import { beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import pg from "pg";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { migratedDatabase } from "../support/postgresHarness.ts";
import type { Receiver } from "../support/receiver.ts";
import {
  type ConfigTree,
  databaseConfig,
  merged,
  ordersTo,
  type Service,
  startOver,
  useServices,
} from "../support/service.ts";
import { insert, SITUATIONS } from "../support/situations.ts";

const services = useServices("block");
failOnLeaks("block");

interface Shown {
  readonly id: string;
  readonly state: string;
  readonly waits: readonly { readonly code: string; readonly text: string }[];
  readonly events: readonly { readonly event: string; readonly actor?: string; readonly reason?: string }[];
  readonly [name: string]: unknown;
}

const SECRET = "planted-secret-4711";
const PULL = "pull-sesame-1";

describe("a service that delivers", () => {
  let database: TestDatabase;
  let receiver: Receiver;
  let config: ConfigTree;
  let service: Service;
  beforeAll(async () => {
    [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const held = { initialDelay: "4s", idempotencyKeyPath: "$.id", aggregateIdPath: "$.key", topic: "orders.held" };
    config = ordersTo(receiver, {
      sources: { held: { ...held, path: "/held" }, pulled: { ...held, path: "/pulled", consumption: "pull" } },
      inbox: { pull: { enabled: true, auth: { token: PULL } } },
      outbox: { retryBaseDelayMs: 20, maxAttempts: 2 },
      admin: { enabled: true, auth: { token: SECRET }, showPayloads: true, redactPayloadPaths: ["$.cards[0].number"] },
    });
    service = await services.start({ database, config });
  });
  beforeEach(() => startOver(database, receiver));

  const read = async (path: string) => {
    const answer = await fetch(`http://127.0.0.1:${service.port}/admin/${path}`, {
      headers: { connection: "close", authorization: `Bearer ${SECRET}` },
    });
    return { status: answer.status, text: await answer.text() };
  };
  const shownBy = async (id: string) => JSON.parse((await read(`messages/${id}`)).text) as Shown;

  async function command(...args: readonly string[]) {
    const file = services.configFile(merged(config, { database: databaseConfig(database) }));
    const child = services.processes.svc([...args, "--config", file], { env: { LOG_LEVEL: "warn" } });
    const { code } = await child.exited;
    return { code, stdout: child.stdout.join("\n") };
  }

  const deadId = () =>
    eventually(async () => {
      const rows = await database.query<{ id: string }>("SELECT id FROM outbox WHERE state = 'dead'");
      expect(rows).toHaveLength(1);
      return rows[0]?.id ?? "";
    });

  test("tells the initial delay of a source, until a killed service has started again and delivers it", async () => {
    const claim = async () => {
      const headers = { authorization: `Bearer ${PULL}` };
      const answer = await service.post({}, { path: "/pull/pulled/claim", headers });
      return (answer.json() as { messages: readonly { idempotencyKey: string }[] }).messages;
    };
    for (const [id, path] of [
      ["h-1", "held"],
      ["h-2", "held"],
      ["p-1", "pulled"],
    ] as const) {
      expect((await service.post({ id, key: "k" }, { path: `/inbox/${path}` })).status).toBe(202);
    }
    expect((await service.post({ id: "o-1", key: "k", type: "created" })).status).toBe(202);
    expect(await claim()).toEqual([]);
    const rows = await database.query(
      "SELECT id, source FROM inbox WHERE idempotency_key IN ('h-1', 'p-1') ORDER BY 2",
    );
    const waits = await Promise.all(rows.map(async ({ id }) => (await shownBy(String(id))).waits));
    expect(waits).toEqual([
      [{ code: "scheduled", text: expect.stringMatching(/^delayed by its source: a relay copies it at \S+Z$/) }],
      [{ code: "scheduled", text: expect.stringMatching(/^delayed by its source: pull clients get it at \S+Z$/) }],
    ]);
    // Settled, or it would be delivered again.
    await eventually(async () => {
      expect(await database.query("SELECT state FROM outbox")).toEqual([{ state: "sent" }]);
    });
    await service.kill();

    service = await services.start({ database, config });
    const bodies = (await receiver.received(3)).map(({ body }) => (JSON.parse(body.toString()) as { id: string }).id);
    expect(bodies).toEqual(["o-1", "h-1", "h-2"]);
    await eventually(
      async () => {
        expect((await claim()).map(({ idempotencyKey }) => idempotencyKey)).toEqual(["p-1"]);
      },
      { intervalMs: 100 },
    );
    const early = await database.query(
      "SELECT id FROM inbox WHERE source = 'held' AND (processed_at IS NULL OR processed_at < created_at + interval '4 seconds')",
    );
    expect(early).toEqual([]);
  });

  // The ids and keys that the command finds it by: test/integration/operatorCommands.test.ts.
  test("tells what happened to a message, with each failed attempt and each action", async () => {
    receiver.answer = (_request, response) => response.writeHead(503).end("not today");
    const headers = { "x-correlation-id": "c-4711" };
    expect((await service.post({ id: "order-4711", key: "k", type: "created" }, { headers })).status).toBe(202);
    const id = await deadId();

    receiver.answer = { status: 200 };
    expect((await command("replay", "--id", id)).code).toBe(0);
    await eventually(async () => expect((await shownBy(id)).state).toBe("sent"), { intervalMs: 100 });

    const shown = await shownBy(id);
    expect(shown).toMatchObject({
      id,
      state: "sent",
      source: "orders",
      idempotencyKey: "order-4711",
      correlationId: "c-4711",
      topic: "orders.created",
      key: "k",
      destination: "receiver",
      waits: [],
    });
    expect(shown.events.map(({ event }) => event)).toEqual([
      "received",
      "relayed",
      "retry",
      "dead",
      "replayed",
      "sent",
    ]);
    expect(shown.events[2]).toMatchObject({ attempt: 1, code: "status_5xx", status: "503", destination: "receiver" });
    expect(shown.events[2]?.reason).toMatch(/was answered 503: not today$/);
    expect(shown.events[4]?.actor).toMatch(/@/);

    const missing = await command("trace", "nobody");
    expect([missing.code, missing.stdout]).toEqual([3, expect.stringContaining('no message has "nobody"')]);
    expect((await read(`messages/${randomUUID()}`)).status).toBe(404);
    expect((await read("messages/x")).status).toBe(404);
  });

  test("shows no secret and no hidden field, with payloads shown", async () => {
    const CARD = '4111-"quoted"-\u00e9-1111';
    receiver.answer = ({ body }, response) => response.writeHead(500).end(`${SECRET} refused ${body.toString()}`);
    const body = {
      id: CARD,
      key: CARD,
      type: `created-${SECRET}`,
      cards: [{ number: "1" }, { number: CARD, until: 2030 }],
      note: SECRET,
    };
    const received = { id: encodeURIComponent(CARD), code: SECRET, [`x-${SECRET}`]: "name" };
    expect((await service.post(body, { headers: received })).status).toBe(202);
    const id = await deadId();
    expect((await service.get(`/admin/messages/${id}`)).status).toBe(401);
    const { status, text } = await read(`messages/${id}`);
    expect(status).toBe(200);
    const shown = JSON.parse(text) as Shown & { payload: string };
    expect(JSON.parse(shown.payload)).toMatchObject({
      cards: [{ number: "***" }, { number: "***", until: 2030 }],
      key: "***",
    });
    const { text: list } = await read("messages?state=dead");
    const [traced, json] = await Promise.all([command("trace", id), command("trace", id, "--json")]);
    expect([traced.code, json.code]).toEqual([0, 0]);
    for (const seen of [text, list, traced.stdout, json.stdout]) {
      expect(seen).toContain(id);
      expect(seen).not.toContain(SECRET);
      expect(seen).not.toMatch(/quoted/);
    }
    expect(JSON.parse(list)).toMatchObject({ messages: [{ id, key: "***", lastError: null }] });
  });

  test("ends in order", async () => {
    expect((await service.stop()).code).toBe(0);
  });
});

/** The ids of all pages of a list. */
async function paged(service: Service, query: string): Promise<readonly string[]> {
  const ids: string[] = [];
  for (let cursor: string | null = ""; cursor !== null; ) {
    const answer = await service.get(`/admin/messages?${query}${cursor === "" ? "" : `&cursor=${cursor}`}`);
    expect(answer.status).toBe(200);
    const page = answer.json() as { messages: { id: string }[]; cursor: string | null };
    ids.push(...page.messages.map(({ id }) => id));
    cursor = page.cursor;
  }
  return ids;
}

describe("a service that receives, and delivers nothing", () => {
  let database: TestDatabase;
  let service: Service;
  beforeAll(async () => {
    database = await migratedDatabase();
    services.defer(() => database.drop());
    const limits = { rateLimit: { perSecond: 1 }, circuitBreaker: {} };
    const config = ordersTo(
      { url: "http://127.0.0.1:9" },
      { admin: { enabled: true, insecure: true }, destinations: { receiver: limits } },
    );
    service = await services.start({ database, config, roles: ["ingest", "admin"] });
  });
  beforeEach(() => database.query("TRUNCATE inbox, outbox, outbox_destination, outbox_process"));

  const shownBy = async (id: string): Promise<Shown> => (await service.get(`/admin/messages/${id}`)).json() as Shown;

  // The command prints the same texts: test/integration/operatorCommands.test.ts.
  test.each(SITUATIONS)("tells why a message waits: %s, %s", async (code, text, prepare) => {
    const id = await prepare(database);
    const { waits } = await shownBy(id);
    expect(waits[0]).toEqual({ code, text: expect.stringContaining(text) });
  });

  test("tells who holds the row, or the one before it, instead of a free slot that is missing", async () => {
    const [first, second] = [await insert(database, "k"), await insert(database, "k")];
    const other = new pg.Client({ connectionString: database.url, application_name: "svc-test" });
    await other.connect();
    try {
      await other.query("BEGIN");
      await other.query("SELECT FROM outbox WHERE id = $1 FOR UPDATE", [first]);
      const text = expect.stringMatching(
        /^locked by pid \d+, idle in transaction for \d+ s, application svc-test, user \w+: it waits until that transaction ends$/,
      );
      const [lock, ...others] = (await shownBy(first)).waits;
      expect(lock).toEqual({ code: "locked", text });
      expect(others.map(({ code }) => code)).toEqual(["no_poller"]);
      expect((await shownBy(second)).waits).toMatchObject([
        { code: "locked", text: expect.stringContaining(`row ${first} is locked by pid`) },
        { code: "behind_row" },
        { code: "no_poller" },
      ]);
    } finally {
      await other.end();
    }
    expect((await shownBy(first)).waits).toMatchObject([{ code: "no_poller" }]);
  });

  test("shows a message without its history if that cannot be read", async () => {
    const id = await insert(database, "k");
    expect((await shownBy(id)).hasHistory).toBe(true);
    await database.query("ALTER TABLE outbox_history RENAME TO gone");
    const shown = await shownBy(id);
    await database.query("ALTER TABLE gone RENAME TO outbox_history");
    expect(shown).toMatchObject({ hasHistory: false, state: "pending" });
  });

  test("lists messages with a correlation id once, though both tables have it, on whichever pages", async () => {
    const ids: string[] = [];
    for (let n = 0; n < 5; n += 1) {
      const id = randomUUID();
      ids.push(id);
      await database.query(
        `INSERT INTO inbox (id, source, idempotency_key, payload, state, correlation_id, created_at)
         VALUES ($1, 'orders', $2, '{}', 'processed', 'c', now() + $3 * interval '1 hour')`,
        [id, `k${n}`, n],
      );
      // Without the header it is found in the inbox alone.
      const headers = n === 2 ? "{}" : '{"X-Correlation-Id":"c"}';
      await database.query("INSERT INTO outbox (id, topic, payload, headers) VALUES ($1, 'orders.created', '{}', $2)", [
        id,
        headers,
      ]);
    }
    expect((await paged(service, "correlationId=c&limit=1")).toSorted()).toEqual(ids.toSorted());
  });

  test("lists messages of any time that the database has on some page", async () => {
    const times = [
      "infinity",
      "20000-02-29T12:00:00Z",
      "2024-02-29T00:00:00.5Z",
      "2024-02-29T00:00:00.500001Z",
      "2024-02-29T00:00:00.500002Z",
      "2024-02-29T00:00:00.500003Z",
      "0001-12-31 23:00:00+00 BC",
      "-infinity",
    ];
    for (const time of times) {
      await database.query(
        "INSERT INTO inbox (source, idempotency_key, payload, state, created_at) VALUES ('orders', $1, '{}', 'dead', $1::text::timestamptz)",
        [time],
      );
    }
    expect(await paged(service, "state=dead&limit=1")).toHaveLength(times.length);
    const forged = (place: string) => Buffer.from(JSON.stringify([null, place])).toString("base64url");
    for (const time of ["2023-13-01T00:00:00Z", "2023-01-01T24:00:00Z"]) {
      const cursor = forged(`${time} ${randomUUID()}`);
      expect([time, (await service.get(`/admin/messages?cursor=${cursor}`)).status]).toEqual([time, 404]);
    }
  });

  test("finds messages by each parameter, newest first, page by page", async () => {
    const ids: string[] = [];
    for (let n = 0; n < 7; n += 1) {
      ids.unshift(
        await insert(database, `k${n % 2}`, n < 3 ? "state = 'sent'" : undefined, n === 6 ? "bills" : "orders.created"),
      );
    }
    expect(
      (await service.post({ id: "a", key: "agg", type: "created" }, { headers: { "x-correlation-id": "c" } })).status,
    ).toBe(202);
    const [received] = await database.query("SELECT id FROM inbox");
    const find = async (query: string) => {
      const answer = await service.get(`/admin/messages?${query}`);
      expect([query, answer.status]).toEqual([query, 200]);
      return answer.json() as { messages: { id: string; table: string; state: string }[]; cursor: string | null };
    };
    const idsOf = async (query: string) => (await find(query)).messages.map(({ id }) => id);
    const all = [String(received?.id), ...ids];
    expect(await idsOf("")).toEqual(all);
    expect(await idsOf("state=sent")).toEqual(ids.slice(4));
    expect(await idsOf("key=k0")).toEqual(ids.filter((_, n) => n % 2 === 0));
    expect(await idsOf("topic=bills")).toEqual(ids.slice(0, 1));
    expect(await idsOf("destination=receiver")).toEqual(ids.slice(1));
    expect(await idsOf("source=orders")).toEqual([received?.id]);
    expect(await idsOf("correlationId=c")).toEqual([received?.id]);
    expect(await idsOf("idempotencyKey=a")).toEqual([received?.id]);
    // A long key, stored as its hash, is found by both.
    const long = "a".repeat(300);
    expect((await service.post({ id: long, type: "created" })).status).toBe(202);
    const [hashed] = await database.query<{ id: string; key: string }>(
      "SELECT id, idempotency_key AS key FROM inbox WHERE idempotency_key LIKE 'sha256:%'",
    );
    for (const key of [long, hashed?.key]) expect(await idsOf(`idempotencyKey=${key}`)).toEqual([hashed?.id]);
    await database.query(`DELETE FROM inbox WHERE idempotency_key LIKE 'sha256:%'`);
    expect(await idsOf(`id=${ids[3]}`)).toEqual([ids[3]]);
    // As the command finds them.
    expect(await idsOf(`text=${ids[3]?.toUpperCase()}`)).toEqual([ids[3]]);
    for (const text of ["a", "c", "agg"]) expect([text, await idsOf(`text=${text}`)]).toEqual([text, [received?.id]]);
    expect(await find("text=k0&state=sent")).toEqual({
      messages: ids.filter((_, n) => n % 2 === 0 && n >= 4).map((id) => expect.objectContaining({ id, state: "sent" })),
      filtered: [],
      cursor: null,
    });
    expect(await idsOf("text=nobody")).toEqual([]);
    for (const other of [
      "source=other",
      "correlationId=other",
      "idempotencyKey=other",
      "createdBefore=2000-01-01T00:00:00Z",
    ]) {
      expect(await idsOf(`id=${received?.id}&${other}`)).toEqual([]);
    }
    expect(await idsOf(`id=${received?.id}&source=orders&correlationId=c&idempotencyKey=a`)).toEqual([received?.id]);
    expect(await idsOf("createdAfter=2999-01-01T00:00:00Z")).toEqual([]);
    expect(await idsOf("createdBefore=2999-01-01T00:00:00Z")).toEqual(all);

    const paged: string[] = [];
    for (let cursor: string | null = ""; cursor !== null; ) {
      const page = await find(`limit=3${cursor === "" ? "" : `&cursor=${cursor}`}`);
      expect(page.messages.length).toBeLessThanOrEqual(3);
      paged.push(...page.messages.map(({ id }) => id));
      cursor = page.cursor;
    }
    expect(paged).toEqual(all);
    for (const query of ["limit=0", "state=odd", "id=x", "createdAfter=yesterday"]) {
      const answer = await service.get(`/admin/messages?${query}`);
      expect([query, answer.status, answer.text]).toEqual([
        query,
        400,
        expect.stringContaining(`\\"${query.split("=")[0]}\\"`),
      ]);
    }
    for (const cursor of [
      "x",
      Buffer.from('["1","2026-99-01T00:00:00Z 01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f"]').toString("base64url"),
    ]) {
      expect([cursor, (await service.get(`/admin/messages?cursor=${cursor}`)).status]).toEqual([cursor, 404]);
    }
  });
});
