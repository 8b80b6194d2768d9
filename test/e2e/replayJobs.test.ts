import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { type ConfigTree, databaseConfig, merged, ordersTo, type Service, useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

const ADMIN = { admin: { enabled: true, insecure: true }, outbox: { pollIntervalMs: 100 } };

function start(database: TestDatabase, config: ConfigTree, ...args: readonly string[]) {
  const file = services.configFile(merged(config, { database: databaseConfig(database) }));
  return services.processes.svc([...args, "--config", file], { env: { LOG_LEVEL: "warn" } });
}

async function command(database: TestDatabase, config: ConfigTree, ...args: readonly string[]) {
  const child = start(database, config, ...args);
  const { code } = await child.exited;
  return { code, stdout: child.stdout.join("\n"), stderr: child.stderr.join("\n") };
}

async function post(service: Service, path: string, body: object): Promise<{ status: number; body: Job }> {
  const url = `http://127.0.0.1:${service.port}/admin/${path}`;
  const answer = await fetch(url, { method: "POST", body: JSON.stringify(body) });
  return { status: answer.status, body: (await answer.json()) as Job };
}

interface Job {
  readonly id: string;
  readonly state: string;
  readonly total: number | null;
  readonly moved: number;
}

async function insertDead(database: TestDatabase, count: number): Promise<void> {
  await database.query(
    `INSERT INTO outbox (topic, key, payload, state, attempt, last_error)
     SELECT 'orders.created', 'k' || n % 7, json_build_object('n', n)::text, 'dead', 5, 'answered 503' FROM generate_series(1, $1::int) n`,
    [count],
  );
}

const dead = async (database: TestDatabase) =>
  Number((await database.query("SELECT count(*)::int AS rows FROM outbox WHERE state = 'dead'"))[0]?.rows);

describe("a replay job", () => {
  test("is counted first, shows its progress under its cap, keeps the order of each key, and can be cancelled", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const config = ordersTo(receiver, ADMIN);
    await insertDeadAfterMigration(database, config, 60);
    const service = await services.start({ database, config });
    const counted = await post(service, "replays", { state: "dead", dryRun: true });
    expect([counted.status, counted.body]).toMatchObject([200, { count: 60, isExact: true }]);
    expect(await dead(database)).toBe(60);

    const startedAt = performance.now();
    const { status, body } = await post(service, "replays", { state: "dead", perSecond: 40, by: "alice" });
    expect([status, body]).toMatchObject([200, { state: "running", total: 60, by: "alice (admin route)" }]);
    const job = async () => (await service.get(`/admin/replays/${body.id}`)).json() as Job;
    await eventually(async () => expect((await job()).moved).toBeGreaterThan(0));
    expect((await job()).moved).toBeLessThan(60);
    await eventually(async () => expect(await job()).toMatchObject({ state: "done", moved: 60 }));
    expect(performance.now() - startedAt).toBeGreaterThan(1000);
    await eventually(() => expect(receiver.requests).toHaveLength(60));
    const byKey = new Map<string, number[]>();
    for (const { body: payload } of receiver.requests) {
      const { n } = JSON.parse(payload.toString()) as { n: number };
      byKey.set(`k${n % 7}`, [...(byKey.get(`k${n % 7}`) ?? []), n]);
    }
    for (const [key, numbers] of byKey) expect([key, numbers]).toEqual([key, numbers.toSorted((a, b) => a - b)]);

    const { body: slow } = await post(service, "replays", { state: "sent", perSecond: 4 });
    await eventually(async () =>
      expect(((await service.get(`/admin/replays/${slow.id}`)).json() as Job).moved).toBeGreaterThan(0),
    );
    expect(await post(service, `replays/${slow.id}/cancel`, {})).toMatchObject({
      status: 200,
      body: { state: "cancelled" },
    });
    expect((await post(service, `replays/${slow.id}/cancel`, {})).status).toBe(409);
    expect((await post(service, `replays/${slow.id}/resume`, {})).status).toBe(409);
    expect((await post(service, `replays/${randomUUID()}/cancel`, {})).status).toBe(404);
    expect((await post(service, "replays", {})).status).toBe(400);
    expect((await post(service, "replays", { state: "dead", perSecond: 0 })).status).toBe(400);
    expect((await service.stop()).code).toBe(0);
  });

  test("delivers rows to another destination, by each route and by the command, and says so in the timeline", async () => {
    const [database, receiver, standby] = await Promise.all([
      services.database(),
      services.receiver(),
      services.receiver(),
    ]);
    const config = ordersTo(receiver, merged(ADMIN, { destinations: { standby: { baseUrl: standby.url } } }));
    await insertDeadAfterMigration(database, config, 20);
    const service = await services.start({ database, config });
    const ids = await database.query<{ id: string }>("SELECT id FROM outbox ORDER BY sequence");
    const [one = "", two = "", three = ""] = ids.map(({ id }) => id);
    const elsewhere = { toDestination: "standby", by: "alice" };
    const seen = () => standby.requests.map(({ headers }) => headers["x-message-id"]);

    expect(await post(service, `messages/${one}/replay`, elsewhere)).toMatchObject({
      status: 200,
      body: { changed: 1 },
    });
    expect(await post(service, "replay", { ids: [two], ...elsewhere })).toMatchObject({
      status: 200,
      body: { moved: 1 },
    });
    const cli = await command(database, config, "replay", "--id", three, "--to", "standby");
    expect([cli.code, cli.stdout]).toEqual([0, "1 row moved to pending"]);
    await eventually(() => expect(new Set(seen())).toEqual(new Set([one, two, three])));
    const timeline = (await service.get(`/admin/messages/${one}`)).json() as { destination: string; events: object[] };
    expect(timeline.destination).toBe("standby");
    expect(timeline.events).toContainEqual(
      expect.objectContaining({
        event: "replayed",
        reason: "to the destination standby",
        actor: "alice (admin route)",
      }),
    );

    const { body: job } = await post(service, "replays", { state: "dead", destination: "receiver", ...elsewhere });
    expect(job).toMatchObject({ filter: { state: "dead", destination: "receiver", toDestination: "standby" } });
    await eventually(() => expect(new Set(seen())).toEqual(new Set(ids.map(({ id }) => id))));
    expect(receiver.requests).toEqual([]);

    expect(await post(service, "replays", { state: "dead", toDestination: "Standby" })).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining('"toDestination" is "Standby"') },
    });
    expect((await post(service, "replay", { toDestination: "standby" })).status).toBe(400);
    const unknown = await command(database, config, "replay", "--id", three, "--to", "nobody");
    expect([unknown.code, unknown.stderr]).toEqual([2, expect.stringContaining("--to")]);
    expect((await service.stop()).code).toBe(0);

    await database.query("ALTER TABLE outbox DROP COLUMN destination_override");
    const unmigrated = merged(config, { database: { migrate: false } });
    const without = await services.start({ database, config: unmigrated });
    for (const route of ["replay", "replays"]) {
      const refused = await post(without, route, { ids: [one], ...elsewhere });
      expect(refused).toMatchObject({ status: 501, body: { error: expect.stringContaining("svc migrate") } });
    }
    expect((await post(without, `messages/${one}/replay`, elsewhere)).status).toBe(501);
    expect((await post(without, `messages/${one}/replay`, {})).status).toBe(200);
    await eventually(() => expect(receiver.requests).toHaveLength(1));
    expect((await without.stop()).code).toBe(0);
  }, 90_000);

  test("goes on in another process when its own is killed, and at its restart; no row is moved twice", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const config = ordersTo(receiver, ADMIN);
    await insertDeadAfterMigration(database, config, 100);
    const first = await services.start({ database, config, roles: ["admin", "poller"] });
    const { body } = await post(first, "replays", { state: "dead", perSecond: 20 });
    await eventually(async () => expect(await dead(database)).toBeLessThan(95));
    await first.kill();
    await database.query("UPDATE outbox_job SET lease_until = now() - interval '1 second'");
    const second = await services.start({ database, config, roles: ["admin", "poller"] });
    await eventually(async () => expect(await dead(database)).toBeLessThan(60), { timeoutMs: 30_000 });
    // An orderly stop releases it.
    expect((await second.stop()).code).toBe(0);
    const [released] = await database.query("SELECT state, lease_until FROM outbox_job");
    expect(released).toEqual({ state: "running", lease_until: null });
    const third = await services.start({ database, config, roles: ["admin", "poller"] });
    await eventually(
      async () => expect((await third.get(`/admin/replays/${body.id}`)).json()).toMatchObject({ state: "done" }),
      { timeoutMs: 30_000 },
    );
    const rows = await database.query(
      "SELECT outbox_id FROM outbox_history WHERE event = 'replayed' GROUP BY outbox_id HAVING count(*) = 1",
    );
    expect(rows).toHaveLength(100);
    expect((await third.stop()).code).toBe(0);
  }, 90_000);

  test("of the command is interrupted by Ctrl-C, says how to go on, and goes on", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const config = ordersTo(receiver, ADMIN);
    await insertDeadAfterMigration(database, config, 40);
    const child = start(database, config, "replay", "--state", "dead", "--per-second", "10");
    await eventually(async () => expect(await dead(database)).toBeLessThan(40));
    child.kill("SIGINT");
    expect((await child.exited).code).toBe(1);
    const [, id = ""] = /svc replay --resume ([0-9a-f-]{36}) goes on/.exec(child.stderr.join("\n")) ?? [];
    expect(id).not.toBe("");
    const left = await dead(database);
    expect(left).toBeGreaterThan(0);
    expect((await command(database, config, "replay", "--jobs")).stdout).toMatch(new RegExp(`${id} +interrupted`));
    await database.query("UPDATE outbox_job SET per_second = NULL");
    const resumed = await command(database, config, "replay", "--resume", id);
    expect([resumed.code, resumed.stdout]).toEqual([0, "40 rows moved to pending"]);
    expect(await dead(database)).toBe(0);
    expect((await command(database, config, "replay", "--resume", id)).stderr).toContain(`the replay ${id} is done`);
    await database.query("DROP TABLE outbox_job");
    await insertDead(database, 3);
    expect((await command(database, config, "replay", "--state", "dead")).stdout).toBe("3 rows moved to pending");
    const capped = await command(database, config, "replay", "--state", "dead", "--per-second", "10");
    expect([capped.code, capped.stderr]).toEqual([1, expect.stringContaining("the table outbox_job cannot be used")]);
  });

  test("of the command says how to go on when the database fails, too", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const config = ordersTo(receiver, ADMIN);
    await insertDeadAfterMigration(database, config, 40);
    const child = start(database, config, "replay", "--state", "dead", "--per-second", "10");
    await eventually(async () => expect(await dead(database)).toBeLessThan(40));
    await database.query("ALTER TABLE outbox_job RENAME TO gone");
    expect((await child.exited).code).toBe(1);
    const [, id = ""] = /svc replay --resume ([0-9a-f-]{36}) goes on/.exec(child.stderr.join("\n")) ?? [];
    await database.query("ALTER TABLE gone RENAME TO outbox_job");
    expect((await command(database, config, "replay", "--resume", id)).stderr).toContain(`the replay ${id} is running`);
    await database.query("UPDATE outbox_job SET per_second = NULL, lease_until = now() - interval '1 second'");
    expect((await command(database, config, "replay", "--resume", id)).code).toBe(0);
    const rows = await database.query(
      "SELECT outbox_id FROM outbox_history WHERE event = 'replayed' GROUP BY outbox_id HAVING count(*) = 1",
    );
    expect(rows).toHaveLength(40);
  });
});

describe("one message", () => {
  test("is retried now, discarded or replayed, where its state allows it", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const config = ordersTo(receiver, ADMIN);
    await insertDeadAfterMigration(database, config, 0);
    const insert = async (state: string, set = "") => {
      const id = randomUUID();
      await database.query(
        `INSERT INTO outbox (id, topic, key, payload, state, attempt, scheduled_at) VALUES ($1::uuid, 'orders.created', $1::uuid::text, '{}', $2, 2, now() + interval '1 hour')`,
        [id, state],
      );
      if (set !== "") await database.query(`UPDATE outbox SET ${set} WHERE id = $1`, [id]);
      return id;
    };
    const admin = await services.start({ database, config, roles: ["admin"] });
    const waiting = await insert("pending");
    const discarded = await insert("pending");
    const finished = await insert("dead");
    const claimed = await insert(
      "processing",
      "claim_token = gen_random_uuid(), claimed_at = now(), lease_expires_at = now() + interval '1 hour'",
    );
    const act = async (id: string, action: string, body: object = {}) =>
      (await post(admin, `messages/${id}/${action}`, body)).status;
    expect(await act(waiting, "retry", { by: "alice" })).toBe(200);
    expect(await act(waiting, "retry")).toBe(409);
    expect(await act(discarded, "discard")).toBe(400);
    expect(await act(discarded, "discard", { reason: "no longer wanted", by: "alice" })).toBe(200);
    expect(await act(finished, "retry")).toBe(409);
    expect(await act(finished, "replay")).toBe(200);
    for (const action of ["retry", "replay"]) expect([action, await act(claimed, action)]).toEqual([action, 409]);
    expect(await act(claimed, "discard", { reason: "r" })).toBe(409);
    expect(await act(randomUUID(), "retry")).toBe(404);
    const rows = await database.query("SELECT id, state, last_error FROM outbox WHERE id = $1", [discarded]);
    expect(rows).toMatchObject([
      { state: "dead", last_error: expect.stringContaining("alice (admin route): no longer wanted") },
    ]);

    const poller = await services.start({ database, config, roles: ["poller"] });
    await eventually(async () => {
      const sent = await database.query("SELECT id FROM outbox WHERE state = 'sent'");
      expect(sent.map(({ id }) => id).toSorted()).toEqual([waiting, finished].toSorted());
    });
    expect((await poller.stop()).code).toBe(0);
    expect((await admin.stop()).code).toBe(0);
  });
});

async function insertDeadAfterMigration(database: TestDatabase, config: ConfigTree, count: number): Promise<void> {
  expect((await command(database, config, "migrate")).code).toBe(0);
  await insertDead(database, count);
}
