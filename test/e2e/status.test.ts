import { beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import type { Receiver } from "../support/receiver.ts";
import { type ConfigTree, databaseConfig, merged, ordersTo, type Service, useServices } from "../support/service.ts";

const services = useServices("block");
failOnLeaks("block");

const SECRET = "planted-secret-4711";

let database: TestDatabase;
let receiver: Receiver;
let config: ConfigTree;
/** Everything but the poller: replicas of that come and go. */
let service: Service;

beforeAll(async () => {
  [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  config = ordersTo(receiver, { admin: { enabled: true, auth: { token: SECRET } }, outbox: { maxAttempts: 1 } });
  service = await services.start({ database, config, roles: ["ingest", "relay", "admin"] });
});
beforeEach(async () => {
  // Nobody delivers what waits unless a test starts a poller.
  await database.query("TRUNCATE inbox, outbox");
  receiver.answer = { status: 200 };
});

async function command(...args: readonly string[]) {
  const file = services.configFile(merged(config, { database: databaseConfig(database) }));
  const child = services.processes.svc([...args, "--config", file], { env: { LOG_LEVEL: "warn" } });
  const { code } = await child.exited;
  return { code, stdout: child.stdout.join("\n"), stderr: child.stderr.join("\n") };
}

interface Overview {
  readonly problems: readonly { readonly text: string }[];
  readonly roles: Readonly<Record<string, { readonly replicas: number }>> | null;
  readonly replicas: readonly { readonly name: string; readonly roles: readonly string[] }[] | null;
  readonly sources: readonly {
    readonly name: string;
    readonly pending: number | null;
    readonly minutes: readonly Readonly<Record<string, number>>[] | null;
  }[];
  readonly destinations: readonly {
    readonly name: string;
    readonly state: string;
    readonly backlog: number | null;
    readonly dead: number | null;
    readonly minutes: readonly Readonly<Record<string, number>>[] | null;
  }[];
  readonly unrouted: { readonly dead: number; readonly topics: readonly string[] };
  readonly outbox: { readonly pending: number; readonly dead: number } | null;
}

function request(path: string, init: RequestInit = {}) {
  const headers = { authorization: `Bearer ${SECRET}`, connection: "close" };
  return fetch(`http://127.0.0.1:${service.port}/admin/${path}`, { headers, ...init });
}

async function get<T>(path: string): Promise<T> {
  const answer = await request(path);
  expect([path, answer.status]).toEqual([path, 200]);
  return (await answer.json()) as T;
}

async function post(path: string, body: object): Promise<void> {
  expect([path, (await request(path, { method: "POST", body: JSON.stringify(body) })).status]).toEqual([path, 200]);
}

const sum = (minutes: readonly Readonly<Record<string, number>>[] | null | undefined, counter: string) =>
  (minutes ?? []).reduce((total, minute) => total + Number(minute[counter]), 0);

async function states(): Promise<Readonly<Record<string, number>>> {
  const rows = await database.query("SELECT state, count(*)::int AS rows FROM outbox GROUP BY state");
  return Object.fromEntries(rows.map(({ state, rows: count }) => [state, count]));
}

describe("the overview", () => {
  test("groups failures by reason, and shows blocked keys", async () => {
    await database.query(
      `INSERT INTO outbox (topic, key, payload, state, attempt, last_error)
       SELECT 'orders.created', 'd' || n, '{}', 'dead', 5, 'POST http://r/ was answered ' || CASE n WHEN 4 THEN 500 ELSE 503 END || ': request ' || n
       FROM generate_series(1, 4) n`,
    );
    await database.query(
      `INSERT INTO outbox (topic, key, payload, attempt, scheduled_at, last_error)
       VALUES ('orders.created', 'k', '{}', 1, now() + interval '1 hour', 'refused'), ('orders.created', 'k', '{}', 0, now(), NULL)`,
    );
    const { groups } = await get<{ groups: { count: number; reason: string; ids: string[] }[] }>(
      "failures?state=dead&destination=receiver",
    );
    expect(groups.map(({ count }) => count)).toEqual([3, 1]);
    expect(groups[0]?.ids).toHaveLength(3);
    const { keys } = await get<{ keys: object[] }>("blocked-keys");
    expect(keys).toMatchObject([{ key: "k", state: "retry", attempt: 1, rowsBehind: 1, destination: "receiver" }]);
    for (const query of ["overview?minutes=0", "failures?state=sent", "blocked-keys?limit=501", "audit?cursor=x"]) {
      expect([query, (await request(query)).status]).toEqual([query, 400]);
    }
  });
});

// What commands did: test/integration/operatorCommands.test.ts.
test("the audit log has who did what, and no secret", async () => {
  await post("destinations/receiver/pause", { reason: `they use ${SECRET}`, for: "2h", by: "alice" });
  await post("destinations/receiver/resume", { by: "alice" });
  await post("replay", { state: "dead", by: "bob" });
  await post("parked/discard", { key: "customer-17", reason: "gone", by: "bob" });

  const { code, stdout } = await command("audit", "--json");
  expect(code).toBe(0);
  const entries = stdout
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Record<string, string>);
  expect(entries.map(({ action }) => action)).toEqual(["pause", "resume", "replay", "parked.discard"]);
  expect(entries[0]).toMatchObject({ actor: "alice (admin route)", target: "receiver" });
  expect(entries[2]).toMatchObject({ actor: "bob (admin route)" });
  expect(stdout).not.toContain(SECRET);
  expect(stdout).not.toContain("customer-17");
  const first = await get<{ entries: { id: string }[]; cursor: string }>("audit?limit=2");
  expect(first.entries).toHaveLength(2);
  const next = await get<object>(`audit?limit=2&cursor=${first.cursor}`);
  expect(next).toMatchObject({ entries: [{ action: "resume" }, { action: "pause" }] });
});

// The last ones: the services end with the first of them.
describe("with a poller, the overview", () => {
  test("has the replicas alive, what they counted, what waits and what is dead", async () => {
    receiver.answer = ({ body }, response) => response.writeHead(body.includes("bad") ? 400 : 200).end("no good");
    const poller = await services.start({ database, config, roles: ["poller"] });
    await eventually(async () => {
      const { roles, replicas } = await get<Overview>("overview");
      expect(roles).toMatchObject({ ingest: { replicas: 1 }, relay: { replicas: 1 }, poller: { replicas: 1 } });
      expect(replicas).toHaveLength(2);
    });
    for (const id of ["a", "a", "b", "bad"]) {
      expect((await service.post({ id, key: id, type: "created" })).status).toBeLessThan(300);
    }
    expect((await service.post("no JSON")).status).toBe(400);
    await database.query("INSERT INTO outbox (topic, payload) VALUES ('ordres.created', '{}')");
    await eventually(async () => expect(await states()).toEqual({ dead: 2, sent: 2 }));

    // An orderly stop writes what is left, and takes the process off the list.
    expect((await poller.stop()).code).toBe(0);
    const shown = await get<Overview>("overview");
    expect(shown.roles).not.toHaveProperty("poller");
    const [destination] = shown.destinations;
    expect(destination).toMatchObject({ name: "receiver", state: "degraded", backlog: 0, dead: 1 });
    expect([sum(destination?.minutes, "sent"), sum(destination?.minutes, "dead")]).toEqual([2, 1]);
    expect(shown.outbox).toMatchObject({ dead: 2 });
    expect(shown.unrouted).toMatchObject({ dead: 1, parked: 0, topics: ["ordres.created"] });

    const { stdout, code } = await command("status");
    expect([code, stdout]).toEqual([
      0,
      expect.stringContaining("! no poller is alive, and nothing is delivered: start one (svc poller)"),
    ]);
    expect(await command("status", "--check")).toMatchObject({ code: 3, stdout: expect.stringMatching(/^!/) });
    expect((await command("status", "--check", "--watch")).code).toBe(2);
    expect(stdout).toMatch(
      // Its last reason is shared a moment after the row.
      /^! receiver is degraded: 1 row died in the last 5 minutes(: POST \S+ was answered 400: no good)?$/m,
    );
    expect(stdout).toMatch(/^receiver +degraded.*\nno destination +0 parked, 1 dead; topics: ordres.created$/m);
    expect(stdout).toContain("! 1 row has no destination (svc explain topic); topics: ordres.created");
    expect(shown.problems.map(({ text }) => text)).toContain(
      "no poller is alive, and nothing is delivered: start one (svc poller)",
    );
    expect((await service.stop()).code).toBe(0);
    const json = await command("status", "--json");
    const [received] = (JSON.parse(json.stdout) as Overview).sources;
    expect([sum(received?.minutes, "received"), sum(received?.minutes, "duplicate")]).toEqual([3, 1]);
    expect(received).toMatchObject({ refusals: { invalid: 1 }, withoutAggregateId: 0 });
    const refused = "! orders refused 1 request in the last 5 minutes: invalid (1)";
    expect((await command("status")).stdout).toContain(refused);
  });

  // The commands without them: test/integration/operatorCommands.test.ts.
  test("works without its tables, and says what is missing", async () => {
    service = await services.start({ database, config });
    await database.query("DROP TABLE outbox_process, outbox_figures, outbox_audit");
    const shown = await get<Overview>("overview");
    expect([shown.roles, shown.replicas, shown.sources[0]?.minutes]).toEqual([null, null, null]);
    expect((await request("audit")).status).toBe(501);
    expect((await service.post({ id: "a", key: "k", type: "created" })).status).toBe(202);
    await eventually(async () => expect(await states()).toEqual({ sent: 1 }));
    await post("destinations/receiver/pause", { reason: "test" });
    expect((await service.stop()).code).toBe(0);
  });
});
