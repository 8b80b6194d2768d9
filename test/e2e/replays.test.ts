import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
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

const services = useServices("block");
failOnLeaks("block");

/** Messages with such a topic wait until a test resumes the destination. */
const HELD = "held.created";

let database: TestDatabase;
let receiver: Receiver;
let standby: Receiver;
let config: ConfigTree;
/** Every role that these need in one process; a test that ends it starts another one. */
let service: Service;

beforeAll(async () => {
  [database, receiver, standby] = await Promise.all([migratedDatabase(), services.receiver(), services.receiver()]);
  services.defer(() => database.drop());
  config = ordersTo(receiver, {
    admin: { enabled: true, insecure: true },
    destinations: { standby: { baseUrl: standby.url }, held: { baseUrl: receiver.url } },
    routes: [
      { topicPattern: HELD, destination: "held" },
      { topicPattern: "orders.**", destination: "receiver" },
    ],
  });
  await database.query(
    "INSERT INTO outbox_destination (name, paused_at, paused_by, pause_reason) VALUES ('held', now(), 'alice', 'test')",
  );
  service = await start();
});
beforeEach(async () => {
  await database.query("DELETE FROM outbox WHERE topic = $1", [HELD]);
  await startOver(database, receiver);
  await database.query("TRUNCATE outbox_history, outbox_audit");
  standby.requests.splice(0);
});

const start = (overrides: ConfigTree = {}) =>
  services.start({ database, config: merged(config, overrides), roles: ["admin", "poller"] });

function launch(...args: readonly string[]) {
  const file = services.configFile(merged(config, { database: databaseConfig(database) }));
  return services.processes.svc([...args, "--config", file], { env: { LOG_LEVEL: "warn" } });
}

async function command(...args: readonly string[]) {
  const child = launch(...args);
  const { code } = await child.exited;
  return { code, stdout: child.stdout.join("\n"), stderr: child.stderr.join("\n") };
}

async function post(path: string, body: object, to = service): Promise<{ status: number; body: unknown }> {
  const answer = await to.post(body, { path: `/admin/${path}` });
  return { status: answer.status, body: answer.json() };
}

interface Group {
  readonly state: string;
  readonly destination: string | null;
  readonly reason: string;
  readonly count: number;
}

/** What it says to do after a replay of the wrong rows. */
const OPERATIONS = readFileSync(new URL("../../docs/operations.md", import.meta.url), "utf8");

interface Line {
  readonly moved?: number;
  readonly finishedBefore?: string;
  readonly done?: true;
  readonly error?: string;
}

const linesOf = (text: string) =>
  text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Line);

/** Follows a replay to its end. @returns its last line */
async function follow(body: object, to = service): Promise<Line | undefined> {
  return linesOf((await to.post(body, { path: "/admin/replays" })).text).at(-1);
}

async function insertDead(count: number, topic = "orders.created"): Promise<void> {
  await database.query(
    `INSERT INTO outbox (topic, key, payload, state, attempt, last_error)
     SELECT $2, 'k' || n % 7, json_build_object('n', n)::text, 'dead', 5, 'answered 503' FROM generate_series(1, $1::int) n`,
    [count, topic],
  );
}

const replayed = async () =>
  Number((await database.query("SELECT count(*)::int AS rows FROM outbox_history WHERE event = 'replayed'"))[0]?.rows);

const dead = async () =>
  Number((await database.query("SELECT count(*)::int AS rows FROM outbox WHERE state = 'dead'"))[0]?.rows);

describe("a replay", () => {
  test("is counted first, shows its progress under its cap, keeps the order of each key, and ends with its caller", async () => {
    await insertDead(60);
    const counted = await post("replays", { state: "dead", dryRun: true });
    expect([counted.status, counted.body]).toMatchObject([200, { count: 60, isExact: true }]);
    expect(await dead()).toBe(60);

    const { status, text } = await service.post(
      { state: "dead", perSecond: 40, by: "alice", other: 1 },
      { path: "/admin/replays" },
    );
    const [first, begun, second = {}, ...rest] = linesOf(text);
    expect([status, first, rest.at(-1)]).toEqual([200, { moved: 0, ignored: ["other"] }, { moved: 60, done: true }]);
    expect(begun).toEqual({ moved: 0, finishedBefore: expect.stringMatching(/^2\S+Z$/) });
    expect(second.finishedBefore).toBe(begun?.finishedBefore);
    expect(second.moved).toBeGreaterThan(0);
    expect(second.moved).toBeLessThan(60);
    const byKey = new Map<string, number[]>();
    for (const { body: payload } of await receiver.received(60)) {
      const { n } = JSON.parse(payload.toString()) as { n: number };
      byKey.set(`k${n % 7}`, [...(byKey.get(`k${n % 7}`) ?? []), n]);
    }
    for (const [key, numbers] of byKey) expect([key, numbers]).toEqual([key, numbers.toSorted((a, b) => a - b)]);
    await eventually(async () =>
      expect(await database.query("SELECT state FROM outbox GROUP BY state")).toEqual([{ state: "sent" }]),
    );
    expect(receiver.requests).toHaveLength(60);

    const leaving = new AbortController();
    const slow = await fetch(`http://127.0.0.1:${service.port}/admin/replays`, {
      method: "POST",
      body: JSON.stringify({ state: "sent", perSecond: 4, by: "bob" }),
      signal: leaving.signal,
    });
    await eventually(async () => expect(await replayed()).toBeGreaterThan(60));
    leaving.abort();
    await expect(slow.text()).rejects.toThrow();
    await eventually(async () =>
      expect(await database.query("SELECT actor, detail FROM outbox_audit WHERE actor LIKE 'bob%'")).toEqual([
        { actor: "bob (admin route)", detail: expect.stringMatching(/^\d+ rows of {"state":"sent"}, ended early$/) },
      ]),
    );
    expect(await replayed()).toBeLessThan(120);
    expect((await post("replays", {})).status).toBe(400);
    expect((await post("replays", { state: "dead", perSecond: 0 })).status).toBe(400);
  });

  test("takes exactly one group of failures, by each route and by the command, and tells which rows these are", async () => {
    await insertDead(20);
    const insertUnrouted = () =>
      database.query(
        `INSERT INTO outbox (topic, payload, state, last_error)
         SELECT 'ordres.v' || n % 3, '{}', 'dead', 'no route matches the topic "ordres.v' || n % 3 || '"' FROM generate_series(1, 30) n`,
      );
    await insertUnrouted();
    const failures = await service.get("/admin/failures?state=dead");
    const [{ state = "", destination = "", reason = "", count = 0 } = {}] = (failures.json() as { groups: Group[] })
      .groups;
    expect([state, destination, count]).toEqual(["dead", null, 30]);
    const group = { state, destination, reason };

    const counted = await service.post({ ...group, dryRun: true }, { path: "/admin/replays" });
    const ofTopic = (topic: string) => ({
      reason: 'no route matches the topic "ordres.#"',
      topic,
      destination: null,
      count: 10,
    });
    expect(counted.json()).toMatchObject({ count: 30, isExact: true });
    expect((counted.json() as { groups: object[] }).groups).toEqual(
      expect.arrayContaining([ofTopic("ordres.v0"), ofTopic("ordres.v1"), ofTopic("ordres.v2")]),
    );

    expect(await follow({ ...group, toDestination: "standby" })).toEqual({ moved: 30, done: true });
    await standby.received(30);
    expect([receiver.requests.length, await dead()]).toEqual([0, 20]);

    await insertUnrouted();
    expect(await post("replay", { reason, topic: "ordres.v0", destination: null })).toMatchObject({
      status: 200,
      body: { moved: 10 },
    });
    await eventually(async () => expect(await dead()).toBe(50));
    const ofGroup = ["replay", "--no-destination", "--reason", 'no route matches the topic "ordres.v7"'];
    const preview = await command(...ofGroup, "--dry-run");
    expect(preview.stdout).toMatch(/^30 rows would be moved to pending; the first 10 of them:$/m);
    expect(preview.stdout).toMatch(/^10 +none +ordres\.v1 +no route matches the topic "ordres\.#"$/m);
    expect((await command(...ofGroup, "--to", "standby")).stdout).toContain("30 rows moved to pending");
    await standby.received(60);
    expect([receiver.requests.length, await dead()]).toEqual([0, 20]);
    const details = await database.query("SELECT detail FROM outbox_audit WHERE action = 'replay' ORDER BY id");
    expect(details[0]?.detail).toContain(String.raw`"reason":"no route matches the topic \"ordres.#\""`);
    expect(details[0]?.detail).toContain('"destination":null');
  });

  test("of the wrong rows: what is still pending is discarded by whom replayed it and when", async () => {
    await insertDead(3);
    await insertDead(5, HELD);
    expect(await follow({ state: "dead", by: "alice" })).toEqual({ moved: 8, done: true });
    await receiver.received(3);
    await eventually(async () =>
      expect(await database.query("SELECT 1 FROM outbox WHERE state = 'sent'")).toHaveLength(3),
    );
    const [statement = "missing"] =
      /UPDATE outbox SET state = 'dead', last_error = 'discarded by [^`]*/.exec(OPERATIONS) ?? [];
    await database.query(statement.replace(/'2026-[^']*'/, "now() - interval '1 hour'"));
    expect(
      await database.query("SELECT state, last_error, count(*)::int AS rows FROM outbox GROUP BY 1, 2 ORDER BY 1"),
    ).toEqual([
      { state: "dead", last_error: "discarded by alice: replayed by mistake", rows: 5 },
      { state: "sent", last_error: null, rows: 3 },
    ]);
  });

  test("delivers rows to another destination, by each route and by the command, and says so in the timeline", async () => {
    await insertDead(20);
    const ids = await database.query<{ id: string }>("SELECT id FROM outbox ORDER BY sequence");
    const [one = "", two = "", three = ""] = ids.map(({ id }) => id);
    const elsewhere = { toDestination: "standby", by: "alice" };
    const seen = () => standby.requests.map(({ headers }) => headers["x-message-id"]);

    expect(await post(`messages/${one}/replay`, elsewhere)).toMatchObject({ status: 200, body: { changed: 1 } });
    expect(await post("replay", { ids: [two], ...elsewhere })).toMatchObject({ status: 200, body: { moved: 1 } });
    const cli = await command("replay", "--id", three, "--to", "standby");
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

    expect(await follow({ state: "dead", destination: "receiver", ...elsewhere })).toMatchObject({ done: true });
    await eventually(() => expect(new Set(seen())).toEqual(new Set(ids.map(({ id }) => id))));
    expect(receiver.requests).toEqual([]);

    expect(await post("replays", { state: "dead", toDestination: "Standby" })).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining('"toDestination" is "Standby"') },
    });
    expect((await post("replay", { toDestination: "standby" })).status).toBe(400);
  });

  // What becomes of it when the database fails: test/integration/replayCommand.test.ts.
  test("that its service or Ctrl-C ends is repeated for the rest, which moves no row twice", async () => {
    const rows = 120;
    await insertDead(rows);
    const all = { topic: "orders.created" };
    const following = follow({ ...all, perSecond: 40 });
    await eventually(async () => expect(await dead()).toBeLessThan(rows - 20));
    expect((await service.stop()).code).toBe(0);
    const ended = await following;
    const finishedBefore = ended?.finishedBefore ?? "missing";
    expect(ended).toEqual({ error: "Service is shutting down", moved: rows - (await dead()), finishedBefore });
    service = await start();

    const again = ["replay", "--topic", all.topic, "--finished-before", finishedBefore];
    const child = launch(...again, "--per-second", "40");
    const left = await dead();
    await eventually(async () => expect(await dead()).toBeLessThan(left));
    child.kill("SIGINT");
    expect((await child.exited).code).toBe(1);
    expect(child.stderr.join("\n")).toContain(`were moved: repeat it with --finished-before ${finishedBefore} for`);
    const rest = await dead();
    expect(rest).toBeGreaterThan(0);
    expect(await post("replay", { ...all, finishedBefore })).toEqual({ status: 200, body: { moved: rest } });
    const once = await database.query(
      "SELECT outbox_id FROM outbox_history WHERE event = 'replayed' GROUP BY outbox_id HAVING count(*) = 1",
    );
    expect(once).toHaveLength(rows);
  }, 90_000);
});

describe("one message", () => {
  test("is retried now, discarded or replayed, if its state allows it", async () => {
    const insert = async (state: string, set = "") => {
      const id = randomUUID();
      await database.query(
        `INSERT INTO outbox (id, topic, key, payload, state, attempt, scheduled_at) VALUES ($1::uuid, $3, $1::uuid::text, '{}', $2, 2, now() + interval '1 hour')`,
        [id, state, HELD],
      );
      if (set !== "") await database.query(`UPDATE outbox SET ${set} WHERE id = $1`, [id]);
      return id;
    };
    const waiting = await insert("pending");
    const discarded = await insert("pending");
    const finished = await insert("dead");
    const claimed = await insert(
      "processing",
      "claim_token = gen_random_uuid(), claimed_at = now(), lease_expires_at = now() + interval '1 hour'",
    );
    const act = async (id: string, action: string, body: object = {}) =>
      (await post(`messages/${id}/${action}`, body)).status;
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
    expect(receiver.requests).toEqual([]);

    expect((await post("destinations/held/resume", {})).status).toBe(200);
    await eventually(async () => {
      const sent = await database.query("SELECT id FROM outbox WHERE state = 'sent'");
      expect(sent.map(({ id }) => id).toSorted()).toEqual([waiting, finished].toSorted());
    });
    expect((await post("destinations/held/pause", { reason: "test" })).status).toBe(200);
  });
});

// The last one: the service ends with it.
test("a replay to another destination is refused without the column for it, and any other one is not", async () => {
  await insertDead(1);
  const [{ id }] = (await database.query("SELECT id FROM outbox")) as [{ id: string }];
  const elsewhere = { toDestination: "standby", by: "alice" };
  expect((await service.stop()).code).toBe(0);
  await database.query("ALTER TABLE outbox DROP COLUMN destination");
  const without = await start({ database: { migrate: false } });

  for (const route of ["replay", "replays"]) {
    expect(await post(route, { ids: [id], ...elsewhere }, without)).toMatchObject({
      status: 501,
      body: { error: expect.stringContaining("svc migrate") },
    });
  }
  expect((await post(`messages/${id}/replay`, elsewhere, without)).status).toBe(501);
  expect((await post(`messages/${id}/replay`, {}, without)).status).toBe(200);
  await receiver.received(1);

  expect((await without.stop()).code).toBe(0);
});
