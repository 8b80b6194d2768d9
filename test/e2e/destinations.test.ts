import { hostname, userInfo } from "node:os";
import { beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { migratedDatabase } from "../support/postgresHarness.ts";
import { type ConfigTree, databaseConfig, merged, ordersTo, type Service, useServices } from "../support/service.ts";

const services = useServices("block");
const { svc } = services.processes;
failOnLeaks("block");

const NOBODY = { url: "http://127.0.0.1:9" };
const ADMIN = { authorization: "Bearer admin-token" };
const CONFIG = ordersTo(NOBODY, {
  destinations: { billing: { baseUrl: NOBODY.url }, "audit/old": { baseUrl: NOBODY.url } },
  admin: { enabled: true, auth: { token: "admin-token" } },
});

let database: TestDatabase;
/** Has the admin routes, and delivers nothing. */
let admin: Service;
beforeAll(async () => {
  database = await migrated();
  admin = await services.start({ database, config: CONFIG, roles: ["admin"] });
});
beforeEach(() => database.query("TRUNCATE outbox_destination"));

async function migrated(): Promise<TestDatabase> {
  const made = await migratedDatabase();
  services.defer(() => made.drop());
  return made;
}

async function destinations(of: TestDatabase, ...args: readonly string[]) {
  const file = services.configFile(merged(CONFIG, { database: databaseConfig(of) }));
  const child = svc(["destinations", ...args, "--config", file]);
  const { code } = await child.exited;
  const lines = child.stdout.filter((line) => !line.startsWith('{"'));
  const logged = child.stdout
    .filter((line) => line.startsWith('{"'))
    .map((line) => JSON.parse(line) as { msg: string });
  return { code, stdout: lines, logged };
}

interface Listed {
  readonly name: string;
  readonly state: string;
  readonly pause: { readonly by: string; readonly reason: string } | null;
}

async function list({ port }: Service) {
  const answer = await fetch(`http://127.0.0.1:${port}/admin/destinations`, {
    headers: { ...ADMIN, connection: "close" },
  });
  const { destinations: rows } = (await answer.json()) as { destinations: readonly Listed[] };
  return { status: answer.status, destinations: rows };
}

const pathOf = (name: string, action: string) => `/admin/destinations/${encodeURIComponent(name)}/${action}`;

const post = (name: string, action: string, body: object | string, headers = ADMIN, to = admin) =>
  to.post(body, { path: pathOf(name, action), headers });

const ME = `${userInfo().username}@${hostname()}`;

// What else it says: test/integration/operatorCommands.test.ts.
test("svc destinations pauses a destination, lists who did it and why, and resumes it", async () => {
  const paused = await destinations(database, "pause", "billing", "--reason", "they migrate", "--for", "2h");

  expect(paused).toMatchObject({ code: 0, stdout: ["billing is paused for 2h"] });
  expect(paused.logged).toEqual([]);
  const { destinations: rows } = await list(admin);
  expect(rows.find(({ name }) => name === "billing")).toMatchObject({
    state: "paused",
    pause: { by: ME, reason: "they migrate" },
  });
  const { stdout: table } = await destinations(database, "list");
  expect(table[0]).toMatch(/^name +state +backlog +oldest +in flight +rate +last success +last failure +last error$/);
  expect(table.join("\n")).toMatch(/^billing +paused since \S+ until \S+ by .*: they migrate /m);

  expect(await destinations(database, "resume", "billing")).toMatchObject({
    code: 0,
    stdout: ["billing is resumed"],
  });
  expect((await list(admin)).destinations.map(({ state }) => state)).not.toContain("paused");
});

describe("a pause under load", () => {
  // They end with the test, whatever becomes of it.
  const own = useServices();
  /** More than are delivered until the pause is in force. */
  const ROWS = 3000;
  /** Enough for each replica to have some of its own. */
  const KEYS = 300;

  test("is in force in three replicas within a second of the command's return, and every row comes once and in order after it", async () => {
    const [billing, audit] = await Promise.all([own.receiver(), own.receiver()]);
    const begun: number[] = [];
    let answersAfterMs = 150;
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
    const start = () => own.start({ database, config: merged(ordersTo(NOBODY), config), roles: ["poller"] });
    const fleet = await Promise.all([start(), start(), start()]);
    await database.query(
      "INSERT INTO outbox (topic, key, payload) SELECT 'bills.paid', 'key-' || n % $2::int, n::text FROM generate_series(0, $1::int - 1) n",
      [ROWS, KEYS],
    );
    await eventually(
      async () => {
        for (const replica of fleet) expect(await replica.metric("svc_outbox_messages_total")).toBeGreaterThan(20);
      },
      { intervalMs: 100 },
    );

    const paused = await destinations(database, "pause", "billing", "--reason", "they migrate");
    const returnedAt = performance.now();
    expect(paused.code).toBe(0);
    const unfinished = () =>
      database.query("SELECT state FROM outbox WHERE topic = 'bills.paid' AND state <> 'sent' GROUP BY state");
    await eventually(async () => expect(await unfinished()).toEqual([{ state: "pending" }]), {
      intervalMs: 100,
    });

    // All replicas claim further rows after that, of the other destination.
    const beganInAll = begun.length;
    const sentBefore = await Promise.all(fleet.map((replica) => replica.metric("svc_outbox_messages_total")));
    let sent = 0;
    const insertForAll = async () => {
      await database.query(
        "INSERT INTO outbox (topic, key, payload) SELECT 'audit.paid', gen_random_uuid(), '1' FROM generate_series(1, 100)",
      );
      sent += 100;
      for (const [n, replica] of fleet.entries()) {
        expect(await replica.metric("svc_outbox_messages_total")).toBeGreaterThan(sentBefore[n] ?? 0);
      }
    };
    await eventually(insertForAll, { intervalMs: 100 });
    await audit.received(sent);
    expect(begun).toHaveLength(beganInAll);
    expect((begun.at(-1) ?? Number.POSITIVE_INFINITY) - returnedAt).toBeLessThan(1000);

    answersAfterMs = 0;
    expect((await post("billing", "resume", "")).json()).toEqual({ resumed: true });
    await eventually(async () => expect(await unfinished()).toEqual([]), { timeoutMs: 60_000, intervalMs: 200 });
    const numbers = billing.requests.map(({ body }) => Number(body.toString()));
    const ofKey = (key: number) => Array.from({ length: ROWS / KEYS }, (_, n) => key + n * KEYS);
    const came = new Map<number, number[]>(Array.from({ length: KEYS }, (_, key) => [key, []]));
    for (const n of numbers) came.get(n % KEYS)?.push(n);
    for (const [key, each] of came) expect(each).toEqual(ofKey(key));
  }, 120_000);
});

describe("the admin routes of destinations", () => {
  test("pause, list and resume, and say who and why in the log", async () => {
    const before = admin.process.stdout.length;
    const paused = await post("audit/old", "pause", { reason: " disk full ", for: "1d" });
    expect([paused.status, paused.json()]).toEqual([200, { paused: true }]);
    const { status, destinations: rows } = await list(admin);
    expect(status).toBe(200);
    expect(rows.find(({ name }) => name === "audit/old")).toMatchObject({
      state: "paused",
      pause: { by: "admin route", reason: "disk full" },
    });
    await post("audit/old", "pause", { reason: "disk full", by: "Zoë" });
    expect((await list(admin)).destinations.find(({ name }) => name === "audit/old")).toMatchObject({
      pause: { by: "Zoë (admin route)" },
    });
    expect((await post("audit/old", "resume", "")).json()).toEqual({ resumed: true });
    expect((await post("audit/old", "resume", { by: "alice" })).json()).toEqual({ resumed: false });

    await admin.process.waitForLine(/alice \(admin route\)/);
    const lines = admin.process.stdout.slice(before).map((line) => JSON.parse(line) as { msg: string });
    expect(lines.filter(({ msg }) => msg.startsWith("destination "))).toMatchObject([
      { level: "info", msg: "destination paused", destination: "audit/old", by: "admin route", reason: "disk full" },
      { level: "info", msg: "destination paused", destination: "audit/old", by: "Zoë (admin route)" },
      { level: "info", msg: "destination resumed", destination: "audit/old", by: "admin route" },
      { level: "info", msg: "destination was not paused", destination: "audit/old", by: "alice (admin route)" },
    ]);
  });

  test("refuse what is wrong", async () => {
    const pause = (name: string, body: object | string, headers = ADMIN) => post(name, "pause", body, headers);
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
    expect((await admin.get("/admin/destinations")).status).toBe(401);
    const otherMethod = await admin.get(pathOf("billing", "pause"));
    expect([otherMethod.status, otherMethod.headers.allow]).toEqual([405, "POST"]);
    const malformed = await admin.post({ reason: "r" }, { path: "/admin/destinations/%zz/pause", headers: ADMIN });
    expect(malformed.status).toBe(404);
    expect(await database.query("SELECT name FROM outbox_destination")).toEqual([]);
  });

  test("without the table list, as the command does, and answer 501 to a pause", async () => {
    const without = await migrated();
    await without.query("DROP TABLE outbox_destination");
    const config: ConfigTree = merged(CONFIG, { database: { migrate: false } });
    const service = await services.start({ database: without, config, roles: ["admin"] });

    expect((await list(service)).status).toBe(200);
    const answer = await post("billing", "pause", { reason: "r" }, ADMIN, service);

    expect(answer.status).toBe(501);
    expect((answer.json() as { error: string }).error).toContain("the log at startup has the statement");
    expect((await service.stop()).code).toBe(0);

    const listed = await destinations(without, "list");
    expect(listed.code).toBe(0);
  });

  test("end with their service, in order", async () => {
    expect((await admin.stop()).code).toBe(0);
  });
});
