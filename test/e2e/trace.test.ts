import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { type ConfigTree, databaseConfig, merged, ordersTo, type Service, useServices } from "../support/service.ts";
import { insert, SITUATIONS, withFullSeconds } from "../support/situations.ts";

const services = useServices();
failOnLeaks();

interface Shown {
  readonly id: string;
  readonly state: string;
  readonly waits: readonly { readonly code: string; readonly text: string }[];
  readonly events: readonly { readonly event: string; readonly actor?: string; readonly reason?: string }[];
  readonly [name: string]: unknown;
}

const ADMIN = { admin: { enabled: true, insecure: true } };

async function command(database: TestDatabase, config: ConfigTree, ...args: readonly string[]) {
  const file = services.configFile(merged(config, { database: databaseConfig(database) }));
  const child = services.processes.svc([...args, "--config", file], { env: { LOG_LEVEL: "warn" } });
  const { code } = await child.exited;
  return { code, stdout: child.stdout.join("\n"), stderr: child.stderr.join("\n") };
}

const shownBy = async (service: Service, id: string): Promise<Shown> =>
  (await service.get(`/admin/messages/${id}`)).json() as Shown;

/** A service that receives, and delivers nothing. */
async function quiet(overrides: ConfigTree = {}) {
  const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const limits = { rateLimit: { perSecond: 1 }, circuitBreaker: {} };
  const config = merged(ordersTo(receiver, { ...ADMIN, destinations: { receiver: limits } }), overrides);
  const service = await services.start({ database, config, roles: ["ingest", "admin"] });
  return { database, receiver, config, service };
}

describe("why a message waits", () => {
  test("is told by the route in each situation, and by the command", async () => {
    const { database, config, service } = await quiet();
    for (const [code, text, prepare] of SITUATIONS) {
      await database.query("TRUNCATE inbox, outbox, outbox_destination, outbox_process");
      const id = await prepare(database);
      const { waits } = await shownBy(service, id);
      expect([code, waits[0]]).toEqual([code, { code, text: expect.stringContaining(text) }]);
      // The command prints the same texts from the same code: a few of them show that it does.
      if (code !== "behind_row" && code !== "rate_limited") continue;
      const traced = command(database, config, "trace", id);
      const { stdout } = code === "rate_limited" ? await withFullSeconds(database, traced) : await traced;
      expect([code, stdout.split("\n").find((line) => line.startsWith("  waits"))]).toEqual([
        code,
        expect.stringContaining(text),
      ]);
    }
    const [, , parked] = SITUATIONS.find(([code]) => code === "parked") as (typeof SITUATIONS)[number];
    const id = await parked(database);
    const { stdout, code } = await command(database, config, "trace", id);
    expect([code, stdout]).toEqual([0, expect.stringMatching(new RegExp(`^${id}  parked, 5 of 5 attempts failed`))]);
    expect(stdout).toContain("waits             parked: svc parked retry delivers it again");
  });

  test("is that no relay runs, where the configuration switches it off", async () => {
    const { service, database, config } = await quiet({ inbox: { relay: { enabled: false } } });
    expect((await service.post({ id: "a", key: "k", type: "created" })).status).toBe(202);
    const [row] = await database.query("SELECT id FROM inbox");
    const { state, waits, events, source } = await shownBy(service, String(row?.id));
    expect([state, source, events.map(({ event }) => event)]).toEqual(["pending", "orders", ["received"]]);
    expect(waits).toEqual([{ code: "relay_disabled", text: expect.stringContaining("inbox.relay.enabled is false") }]);
    const { stdout } = await command(database, config, "trace", String(row?.id));
    expect(stdout).toContain("waits             inbox.relay.enabled is false");
  });

  test("is the initial delay of its source, until a killed service has started again and delivers it", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const held = { initialDelay: "4s", idempotencyKeyPath: "$.id", aggregateIdPath: "$.key", topic: "orders.held" };
    const sources = { held: { ...held, path: "/held" }, pulled: { ...held, path: "/pulled", consumption: "pull" } };
    const pull = { enabled: true, auth: { token: "pull-sesame-1" } };
    const config = merged(ordersTo(receiver, { ...ADMIN, sources }), { inbox: { pull } });
    const killed = await services.start({ database, config });
    const claim = async (service: Service) => {
      const headers = { authorization: "Bearer pull-sesame-1" };
      const answer = await service.post({}, { path: "/pull/pulled/claim", headers });
      return (answer.json() as { messages: readonly { idempotencyKey: string }[] }).messages;
    };
    for (const [id, path] of [
      ["h-1", "held"],
      ["h-2", "held"],
      ["p-1", "pulled"],
    ] as const) {
      expect((await killed.post({ id, key: "k" }, { path: `/inbox/${path}` })).status).toBe(202);
    }
    expect((await killed.post({ id: "o-1", key: "k", type: "created" })).status).toBe(202);
    expect(await claim(killed)).toEqual([]);
    const rows = await database.query(
      "SELECT id, source FROM inbox WHERE idempotency_key IN ('h-1', 'p-1') ORDER BY 2",
    );
    const [push, pulled] = rows.map(({ id }) => String(id));
    const waits = await Promise.all([push, pulled].map(async (id) => (await shownBy(killed, String(id))).waits));
    expect(waits).toEqual([
      [{ code: "scheduled", text: expect.stringMatching(/^held by its source: the relay copies it from \S+Z on$/) }],
      [{ code: "scheduled", text: expect.stringMatching(/^held by its source: pull clients get it from \S+Z on$/) }],
    ]);
    // Settled, or it would be delivered again.
    await eventually(async () => {
      expect(await database.query("SELECT state FROM outbox")).toEqual([{ state: "sent" }]);
    });
    killed.process.kill("SIGKILL");
    await killed.process.exited;

    const service = await services.start({ database, config });
    const bodies = (await receiver.received(3)).map(({ body }) => (JSON.parse(body.toString()) as { id: string }).id);
    expect(bodies).toEqual(["o-1", "h-1", "h-2"]);
    await eventually(async () => {
      expect((await claim(service)).map(({ idempotencyKey }) => idempotencyKey)).toEqual(["p-1"]);
    });
    const early = await database.query(
      "SELECT id FROM inbox WHERE source = 'held' AND (processed_at IS NULL OR processed_at < created_at + interval '4 seconds')",
    );
    expect(early).toEqual([]);
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

describe("what happened to a message", () => {
  test("from its receipt to the receiver, with each failed attempt and each action", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const refuses = { all: true };
    receiver.answer = (_request, response) => response.writeHead(refuses.all ? 503 : 200).end("not today");
    const config = ordersTo(receiver, {
      ...ADMIN,
      outbox: { retryBaseDelayMs: 20, maxAttempts: 2, pollIntervalMs: 100 },
    });
    const service = await services.start({ database, config });
    const headers = { "x-correlation-id": "c-4711" };
    expect((await service.post({ id: "order-4711", key: "k", type: "created" }, { headers })).status).toBe(202);
    const [{ id }] = (await eventually(async () => {
      const rows = await database.query("SELECT id FROM outbox WHERE state = 'dead'");
      expect(rows).toHaveLength(1);
      return rows;
    })) as [{ id: string }];

    refuses.all = false;
    expect((await command(database, config, "replay", "--id", id)).code).toBe(0);
    await eventually(async () => expect((await shownBy(service, id)).state).toBe("sent"));

    const shown = await shownBy(service, id);
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

    for (const text of [id, "order-4711", "c-4711", "k"]) {
      const { code, stdout } = await command(database, config, "trace", text, "--json");
      expect([text, code, (JSON.parse(stdout) as Shown[]).map((each) => each.id)]).toEqual([text, 0, [id]]);
    }
    const missing = await command(database, config, "trace", "nobody");
    expect([missing.code, missing.stdout]).toEqual([3, expect.stringContaining('no message has "nobody"')]);
    expect((await service.get(`/admin/messages/${randomUUID()}`)).status).toBe(404);
    expect((await service.get("/admin/messages/x")).status).toBe(404);
    expect((await service.stop()).code).toBe(0);
  });

  test("is shown without its history where that cannot be read", async () => {
    const { database, service, config } = await quiet();
    const id = await insert(database, "k");
    expect((await shownBy(service, id)).hasHistory).toBe(true);
    await database.query("DROP TABLE outbox_history");
    expect(await shownBy(service, id)).toMatchObject({ hasHistory: false, state: "pending" });
    const { code, stdout } = await command(database, config, "trace", id);
    expect([code, stdout]).toEqual([0, expect.stringContaining("its table cannot be read")]);
    const tail = await command(database, config, "tail");
    expect([tail.code, tail.stderr]).toEqual([1, expect.stringContaining("the table outbox_history cannot be read")]);
  });

  test("has no secret and no hidden field, with payloads shown", async () => {
    const SECRET = "planted-secret-4711";
    const CARD = '4111-"quoted"-\u00e9-1111';
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    receiver.answer = ({ body }, response) => response.writeHead(500).end(`${SECRET} refused ${body.toString()}`);
    const config = ordersTo(receiver, {
      admin: { enabled: true, auth: { token: SECRET }, showPayloads: true, redactPayloadPaths: ["$.cards[0].number"] },
      outbox: { maxAttempts: 1 },
    });
    const service = await services.start({ database, config });
    const body = {
      id: CARD,
      key: CARD,
      type: `created-${SECRET}`,
      cards: [{ number: "1" }, { number: CARD, until: 2030 }],
      note: SECRET,
    };
    const received = { id: encodeURIComponent(CARD), code: SECRET, [`x-${SECRET}`]: "name" };
    expect((await service.post(body, { headers: received })).status).toBe(202);
    const [{ id }] = (await eventually(async () => {
      const rows = await database.query("SELECT id FROM outbox WHERE state = 'dead'");
      expect(rows).toHaveLength(1);
      return rows;
    })) as [{ id: string }];
    const authorized = async (path: string) => {
      const response = await fetch(`http://127.0.0.1:${service.port}${path}`, {
        headers: { authorization: `Bearer ${SECRET}` },
      });
      return [response.status, await response.text()] as const;
    };
    expect((await service.get(`/admin/messages/${id}`)).status).toBe(401);
    const [status, text] = await authorized(`/admin/messages/${id}`);
    expect(status).toBe(200);
    const shown = JSON.parse(text) as Shown & { payload: string };
    expect(JSON.parse(shown.payload)).toMatchObject({
      cards: [{ number: "***" }, { number: "***", until: 2030 }],
      key: "***",
    });
    const [, list] = await authorized("/admin/messages?state=dead");
    const { stdout } = await command(database, config, "trace", id);
    const { stdout: json } = await command(database, config, "trace", id, "--json");
    for (const seen of [text, list, stdout, json]) {
      expect(seen).toContain(id);
      expect(seen).not.toContain(SECRET);
      expect(seen).not.toMatch(/quoted/);
    }
    // Nobody knows whether the key of a message that is too large to be searched is a hidden value.
    await database.query("UPDATE outbox SET payload = payload || repeat(' ', 70000)");
    const [, large] = await authorized("/admin/messages?state=dead");
    expect(JSON.parse(large)).toMatchObject({ messages: [{ id, key: "***", topic: "***", lastError: null }] });
    expect((await service.stop()).code).toBe(0);
  });
});

describe("messages", () => {
  test("with a correlation id come once, though both tables have it, on whichever pages", async () => {
    const { database, service } = await quiet();
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

  test("of any time that the database has are on some page", async () => {
    const { database, service } = await quiet();
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
    for (const time of [
      "2023-02-29T00:00:00Z",
      "2023-01-01T24:00:00Z",
      "0000-01-01T00:00:00Z",
      "999999-01-01T00:00:00Z",
    ]) {
      const cursor = forged(`${time} ${randomUUID()}`);
      expect([time, (await service.get(`/admin/messages?cursor=${cursor}`)).status]).toEqual([time, 404]);
    }
  });

  test("are found by each parameter, newest first, page by page", async () => {
    const { database, service } = await quiet();
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
    expect(await idsOf(`id=${ids[3]}`)).toEqual([ids[3]]);
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
