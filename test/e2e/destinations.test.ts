import { hostname, userInfo } from "node:os";
import { describe, expect, test } from "@jest/globals";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { postgresStore } from "../support/postgresHarness.ts";
import { type ConfigTree, merged, ordersTo, type Service, useServices } from "../support/service.ts";

const services = useServices();
const { svc } = services.processes;
failOnLeaks();

const NOBODY = { url: "http://127.0.0.1:9" };
const ADMIN = { authorization: "Bearer admin-token" };
const DESTINATIONS = { billing: { baseUrl: NOBODY.url }, "audit/old": { baseUrl: NOBODY.url } };
const CONFIG: ConfigTree = { destinations: DESTINATIONS, admin: { enabled: true, auth: { token: "admin-token" } } };

async function migrated(): Promise<TestDatabase> {
  const database = await services.database();
  const store = postgresStore(database);
  await store.schema.migrate().finally(() => store.close());
  return database;
}

function configOf(database: TestDatabase, overrides: ConfigTree = {}): string {
  const { jdbcUrl: url, user: username, password } = database;
  const own = merged(ordersTo(NOBODY, { database: { url, username, password } }), CONFIG);
  return services.configFile(merged(own, overrides));
}

async function destinations(file: string, ...args: readonly string[]) {
  const child = svc(["destinations", ...args, "--config", file]);
  const { code } = await child.exited;
  const lines = child.stdout.filter((line) => !line.startsWith('{"'));
  const logged = child.stdout
    .filter((line) => line.startsWith('{"'))
    .map((line) => JSON.parse(line) as { msg: string });
  return { code, stdout: lines, logged, stderr: child.stderr.join("\n") };
}

interface Listed {
  readonly name: string;
  readonly state: string;
  readonly pause: {
    readonly by: string;
    readonly reason: string;
    readonly since: string;
    readonly until: string | null;
  };
}

async function listed(file: string): Promise<readonly Listed[]> {
  const { code, stdout } = await destinations(file, "list", "--json");
  expect(code).toBe(0);
  return (JSON.parse(stdout.join("\n")) as { destinations: readonly Listed[] }).destinations;
}

const ME = `${userInfo().username}@${hostname()}`;

describe("svc destinations", () => {
  test("is told by explain topic: limits always, the state on request", async () => {
    const file = configOf(await migrated(), {
      destinations: { billing: { rateLimit: { perSecond: 5 } } },
      routes: [{ topicPattern: "bills.**", destination: "billing" }],
    });
    await destinations(file, "pause", "billing", "--reason", "they migrate");
    const explained = async (...args: readonly string[]) => {
      const child = svc(["explain", "topic", "bills.paid", "--config", file, ...args]);
      return { code: (await child.exited).code, text: child.stdout.join("\n") };
    };
    const offline = await explained();
    expect(offline.code).toBe(0);
    expect(offline.text).toMatch(/5.*second/);
    expect(offline.text).not.toMatch(/paused/);
    expect((await explained("--state")).text).toMatch(
      /^state +paused since \S+ by .*: they migrate; 0 rows wait, 0 are in flight$/m,
    );
  });

  test("pauses a destination, lists who did it and why, and resumes it once", async () => {
    const file = configOf(await migrated());

    const paused = await destinations(file, "pause", "billing", "--reason", "they migrate", "--for", "2h");

    expect(paused).toMatchObject({ code: 0, stdout: ["billing is paused for 2h"] });
    expect(paused.logged.filter(({ msg }) => msg === "destination paused")).toMatchObject([
      { level: "info", destination: "billing", by: ME, reason: "they migrate", forMs: 7_200_000 },
    ]);
    const rows = await listed(file);
    const billing = rows.find(({ name }) => name === "billing");
    expect(billing).toMatchObject({ state: "paused", pause: { by: ME, reason: "they migrate" } });
    const lastsMs = Date.parse(billing?.pause.until ?? "") - Date.parse(billing?.pause.since ?? "");
    expect(Math.abs(lastsMs - 7_200_000)).toBeLessThanOrEqual(1);
    expect(rows.find(({ name }) => name === "audit/old")).toMatchObject({ state: "ok", pause: null });
    const { stdout: table } = await destinations(file, "list");
    expect(table[0]).toMatch(/^name +state +backlog +oldest +in flight +rate +last success +last failure +last error$/);
    expect(table.join("\n")).toMatch(/^billing +paused since \S+ until \S+ by .*: they migrate /m);

    expect(await destinations(file, "resume", "billing")).toMatchObject({ code: 0, stdout: ["billing is resumed"] });
    expect(await destinations(file, "resume", "billing")).toMatchObject({
      code: 0,
      stdout: ["billing was not paused"],
    });
    expect((await listed(file)).map(({ state }) => state)).not.toContain("paused");
  });

  test("tells what is wrong with the command, with exit code 2, and changes nothing", async () => {
    const database = await migrated();
    const file = configOf(database);
    const cases = [
      [["pause", "biling", "--reason", "r"], 'there is no destination "biling": the destinations are '],
      [["resume", "biling"], 'did you mean "billing"?'],
      [["pause", "billing"], "required option '--reason <text>'"],
      [["pause", "billing", "--reason", "  "], "A reason that is not blank is expected"],
      [["pause", "billing", "--reason", "x".repeat(1001)], "at most 1000 characters"],
      [["pause", "billing", "--reason", "r", "--for", "0h"], "A whole number from 1"],
    ] as const;
    for (const [args, message] of cases) {
      const { code, stderr } = await destinations(file, ...args);
      expect([args, code]).toEqual([args, 2]);
      expect(stderr).toContain(message);
    }
    expect(await database.query("SELECT name FROM outbox_destination")).toEqual([]);
  });

  test("without the table lists with a warning, and refuses to pause with the statement that makes it", async () => {
    const database = await migrated();
    await database.query("DROP TABLE outbox_destination");
    const file = configOf(database, { database: { migrate: false } });

    const list = await destinations(file, "list");
    expect(list.code).toBe(0);
    expect(list.logged).toMatchObject([
      { level: "warn", remedy: expect.stringMatching(/^CREATE TABLE "outbox_destination" \(.*\);$/) },
    ]);
    const refused = await destinations(file, "pause", "billing", "--reason", "r");
    expect(refused.code).toBe(2);
    const statement = /CREATE TABLE .*;/.exec(refused.stderr)?.[0] ?? "";

    await database.query(statement);
    expect((await destinations(file, "pause", "billing", "--reason", "r")).code).toBe(0);
  });
});

describe("a pause under load", () => {
  const ROWS = 12_000;
  const KEYS = 300;

  test("is in force in three replicas within a second of the command's return, and every row comes once and in order after it", async () => {
    const [database, billing, audit] = await Promise.all([migrated(), services.receiver(), services.receiver()]);
    const begun: number[] = [];
    let answersAfterMs = 50;
    billing.answer = (_, response) => {
      begun.push(performance.now());
      setTimeout(() => response.end(), answersAfterMs);
    };
    const config = {
      destinations: { billing: { baseUrl: billing.url }, audit: { baseUrl: audit.url } },
      routes: [
        { topicPattern: "bills.**", destination: "billing" },
        { topicPattern: "audit.**", destination: "audit" },
      ],
    };
    const start = () => services.start({ database, config: merged(ordersTo(NOBODY), config), roles: ["poller"] });
    const fleet = await Promise.all([start(), start(), start()]);
    await database.query(
      "INSERT INTO outbox (topic, key, payload) SELECT 'bills.paid', 'key-' || n % $2::int, n::text FROM generate_series(0, $1::int - 1) n",
      [ROWS, KEYS],
    );
    await eventually(async () => {
      for (const replica of fleet) expect(await replica.metric("svc_outbox_messages_total")).toBeGreaterThan(50);
    });

    const paused = await destinations(configOf(database, config), "pause", "billing", "--reason", "they migrate");
    const returnedAt = performance.now();
    expect(paused.code).toBe(0);
    const unfinished = () =>
      database.query("SELECT state FROM outbox WHERE topic = 'bills.paid' AND state <> 'sent' GROUP BY state");
    await eventually(async () => expect(await unfinished()).toEqual([{ state: "pending" }]));

    // All replicas claim further rows after that, of the other destination.
    const beganInAll = begun.length;
    const sentBefore = await Promise.all(fleet.map((replica) => replica.metric("svc_outbox_messages_total")));
    let sent = 0;
    await eventually(async () => {
      await database.query(
        "INSERT INTO outbox (topic, key, payload) SELECT 'audit.paid', gen_random_uuid(), '1' FROM generate_series(1, 100)",
      );
      sent += 100;
      for (const [n, replica] of fleet.entries()) {
        expect(await replica.metric("svc_outbox_messages_total")).toBeGreaterThan(sentBefore[n] ?? 0);
      }
    });
    await audit.received(sent);
    expect(begun).toHaveLength(beganInAll);
    expect((begun.at(-1) ?? Number.POSITIVE_INFINITY) - returnedAt).toBeLessThan(1000);

    answersAfterMs = 0;
    await destinations(configOf(database, config), "resume", "billing");
    await eventually(async () => expect(await unfinished()).toEqual([]), { timeoutMs: 60_000, intervalMs: 200 });
    const numbers = billing.requests.map(({ body }) => Number(body.toString()));
    const ofKey = (key: number) => Array.from({ length: ROWS / KEYS }, (_, n) => key + n * KEYS);
    const came = new Map<number, number[]>(Array.from({ length: KEYS }, (_, key) => [key, []]));
    for (const n of numbers) came.get(n % KEYS)?.push(n);
    for (const [key, each] of came) expect(each).toEqual(ofKey(key));
  }, 120_000);
});

describe("the admin routes of destinations", () => {
  const pathOf = (name: string, action: string) => `/admin/destinations/${encodeURIComponent(name)}/${action}`;

  async function list({ port }: Service) {
    const answer = await fetch(`http://127.0.0.1:${port}/admin/destinations`, {
      headers: { ...ADMIN, connection: "close" },
    });
    const { destinations: rows } = (await answer.json()) as { destinations: readonly Listed[] };
    return { status: answer.status, destinations: rows };
  }

  test("pause, list and resume, and say who and why in the log", async () => {
    const database = await migrated();
    const service = await services.start({ database, config: merged(ordersTo(NOBODY), CONFIG), roles: ["admin"] });
    const post = (name: string, action: string, body: object | string) =>
      service.post(body, { path: pathOf(name, action), headers: ADMIN });

    const paused = await post("audit/old", "pause", { reason: " disk full ", for: "1d" });
    expect([paused.status, paused.json()]).toEqual([200, { paused: true }]);
    const { status, destinations: rows } = await list(service);
    expect(status).toBe(200);
    expect(rows.find(({ name }) => name === "audit/old")).toMatchObject({
      state: "paused",
      pause: { by: "admin route", reason: "disk full" },
    });
    await post("audit/old", "pause", { reason: "disk full", by: "Zoë" });
    expect((await list(service)).destinations.find(({ name }) => name === "audit/old")).toMatchObject({
      pause: { by: "Zoë (admin route)" },
    });
    expect((await post("audit/old", "resume", "")).json()).toEqual({ resumed: true });
    expect((await post("audit/old", "resume", { by: "alice" })).json()).toEqual({ resumed: false });

    expect((await service.stop()).code).toBe(0);
    const lines = service.process.stdout.map((line) => JSON.parse(line) as { msg: string });
    expect(lines.filter(({ msg }) => msg.startsWith("destination "))).toMatchObject([
      { level: "info", msg: "destination paused", destination: "audit/old", by: "admin route", reason: "disk full" },
      { level: "info", msg: "destination paused", destination: "audit/old", by: "Zoë (admin route)" },
      { level: "info", msg: "destination resumed", destination: "audit/old", by: "admin route" },
      { level: "info", msg: "destination was not paused", destination: "audit/old", by: "alice (admin route)" },
    ]);
  });

  test("refuse what is wrong", async () => {
    const database = await migrated();
    const service = await services.start({ database, config: merged(ordersTo(NOBODY), CONFIG), roles: ["admin"] });
    const pause = (name: string, body: object | string, headers = ADMIN) =>
      service.post(body, { path: pathOf(name, "pause"), headers });
    const cases = [
      [{ reason: "r", for: "2w" }, '"for" is "2w"; a whole number from 1'],
      [{ reason: "r", for: 7 }, '"for" is a number; a string is expected'],
      [{ reason: " " }, '"reason" is " "; a reason that is not blank'],
      [{}, '"reason" is missing'],
      [{ reason: "r", by: "a\nb" }, '"by" is "a\\nb"; 1 to 100 printable characters'],
      ["{", "the body is not a JSON document"],
      ["[]", "the body is an array"],
    ] as const;
    for (const [body, message] of cases) {
      const answer = await pause("billing", body);
      expect([body, answer.status]).toEqual([body, 400]);
      expect((answer.json() as { error: string }).error).toContain(`Invalid request: ${message}`);
    }
    const unknown = await pause("nobody", { reason: "r" });
    expect(unknown.status).toBe(404);
    expect((unknown.json() as { error: string }).error).toMatch(
      /^There is no destination "nobody" \(there are .*billing/,
    );
    expect((await pause("billing", { reason: "r" }, { authorization: "Bearer wrong" })).status).toBe(401);
    expect((await service.get("/admin/destinations")).status).toBe(401);
    const otherMethod = await service.get(pathOf("billing", "pause"));
    expect([otherMethod.status, otherMethod.headers.allow]).toEqual([405, "POST"]);
    const malformed = await service.post({ reason: "r" }, { path: "/admin/destinations/%zz/pause", headers: ADMIN });
    expect(malformed.status).toBe(404);
    expect(await database.query("SELECT name FROM outbox_destination")).toEqual([]);
  });

  test("without the table list, and answer 501 to a pause", async () => {
    const database = await migrated();
    await database.query("DROP TABLE outbox_destination");
    const config = merged(merged(ordersTo(NOBODY), CONFIG), { database: { migrate: false } });
    const service = await services.start({ database, config, roles: ["admin"] });

    expect((await list(service)).status).toBe(200);
    const answer = await service.post({ reason: "r" }, { path: pathOf("billing", "pause"), headers: ADMIN });

    expect(answer.status).toBe(501);
    expect((answer.json() as { error: string }).error).toContain("the log at startup has the statement");
  });
});
