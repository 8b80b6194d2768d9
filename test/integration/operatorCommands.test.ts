import { beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { addDestinationCommands } from "../../src/cli/destinations.ts";
import { addExplainCommand } from "../../src/cli/explain.ts";
import type { AddCommands } from "../../src/cli/io.ts";
import { addParkedCommands } from "../../src/cli/parked.ts";
import { addReplayCommand } from "../../src/cli/replay.ts";
import { addStatusCommands } from "../../src/cli/status.ts";
import { addTailCommand } from "../../src/cli/tail.ts";
import { addTraceCommand } from "../../src/cli/trace.ts";
import { storedKey } from "../../src/core/receipt/attributes.ts";
import { ConfigError } from "../../src/model/errors.ts";
import { PARKED_UNTIL } from "../../src/model/rows.ts";
import { runCommand } from "../support/commands.ts";
import type { TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { databaseCopies } from "../support/postgresHarness.ts";
import { type ConfigTree, databaseConfig, merged, ordersTo, useServices } from "../support/service.ts";
import { insert, SITUATIONS } from "../support/situations.ts";

const services = useServices("block");
const copyOfMigrated = databaseCopies();
failOnLeaks("block");

const NOBODY = { url: "http://127.0.0.1:9" };

let database: TestDatabase;
beforeAll(async () => {
  database = await migrated();
});
beforeEach(() => database.query("TRUNCATE inbox, outbox, outbox_history, outbox_destination, outbox_process"));

/** A database of a test's own, for what it takes away. */
async function migrated(): Promise<TestDatabase> {
  const made = await copyOfMigrated();
  services.defer(() => made.drop());
  return made;
}

const configOf = (of: TestDatabase, overrides: ConfigTree = {}) =>
  services.configFile(merged(ordersTo(NOBODY, { database: databaseConfig(of) }), overrides));

async function run(add: AddCommands, file: string, ...args: readonly string[]) {
  const { error, ...done } = await runCommand(add, [...args, "--config", file]);
  if (error !== undefined) throw error;
  return done;
}

describe("svc destinations", () => {
  const destinations = async (file: string, ...args: readonly string[]) =>
    (await run(addDestinationCommands, file, "destinations", ...args)).stdout;

  interface Listed {
    readonly name: string;
    readonly pause: { readonly since: string; readonly until: string | null } | null;
  }

  const listed = async (file: string) =>
    (JSON.parse(await destinations(file, "list", "--json")) as { destinations: readonly Listed[] }).destinations;

  test("lists as JSON what is paused, by whom, why and until when, and says whether a resume ended a pause", async () => {
    const file = configOf(database, { destinations: { billing: { baseUrl: NOBODY.url } } });
    await destinations(file, "pause", "billing", "--reason", "they migrate", "--for", "2h");

    const rows = await listed(file);
    const billing = rows.find(({ name }) => name === "billing");
    expect(billing).toMatchObject({
      state: "paused",
      pause: { by: expect.stringMatching(/@/), reason: "they migrate" },
    });
    const lastsMs = Date.parse(billing?.pause?.until ?? "") - Date.parse(billing?.pause?.since ?? "");
    expect(Math.abs(lastsMs - 7_200_000)).toBeLessThanOrEqual(1);
    expect(rows.find(({ name }) => name === "receiver")).toMatchObject({ state: "unknown", pause: null });

    expect(await destinations(file, "resume", "billing")).toBe("billing is resumed\n");
    expect(await destinations(file, "resume", "billing")).toBe("billing was not paused\n");
    expect((await listed(file)).map(({ pause }) => pause)).toEqual([null, null]);
  });

  test("changes nothing for a name that is not configured, and lists the configured names", async () => {
    const file = configOf(database);
    const pause = destinations(file, "pause", "reciever", "--reason", "r");
    await expect(pause).rejects.toBeInstanceOf(ConfigError);
    await expect(pause).rejects.toThrow('there is no destination "reciever": the destinations are receiver');
    await expect(destinations(file, "resume", "reciever")).rejects.toThrow('did you mean "receiver"?');
    expect(await database.query("SELECT name FROM outbox_destination")).toEqual([]);
  });

  test("have their limits in svc explain topic always, their state on request", async () => {
    const file = configOf(database, { destinations: { receiver: { rateLimit: { perSecond: 5 } } } });
    await destinations(file, "pause", "receiver", "--reason", "they migrate");
    const explained = (...args: readonly string[]) =>
      run(addExplainCommand, file, "explain", "topic", "orders.paid", ...args);
    const offline = await explained();
    expect([offline.exitCode, offline.stdout]).toEqual([0, expect.stringMatching(/5.*second/)]);
    expect(offline.stdout).not.toMatch(/paused/);
    expect((await explained("--state")).stdout).toMatch(
      /^state +paused since \S+ by .*: they migrate; 0 rows wait, 0 are in flight$/m,
    );
  });
});

describe("svc explain topic", () => {
  test("shows the state of every destination of a list behind what it has", async () => {
    const file = configOf(database, {
      destinations: { billing: { baseUrl: NOBODY.url } },
      routes: [{ topicPattern: "orders.*", destinations: ["receiver", "billing"] }],
    });
    await run(addDestinationCommands, file, "destinations", "pause", "billing", "--reason", "they migrate");
    const { stdout } = await run(addExplainCommand, file, "explain", "topic", "orders.paid", "--state");
    expect(stdout).toMatch(
      /^destination +receiver [\s\S]*^state +unknown; 0 rows wait[\s\S]*^destination +billing [\s\S]*^state +paused since .* they migrate;/m,
    );
  });
});

describe("svc parked", () => {
  const parked = async (...args: readonly string[]) =>
    (await run(addParkedCommands, configOf(database), "parked", ...args)).stdout;

  test("retries every row, and says when none matches", async () => {
    for (const key of ["a", "b"]) await insert(database, key, `attempt = 5, scheduled_at = '${PARKED_UNTIL}'`);

    expect(await parked("list", "--topic", "bills.*")).toBe("no parked row matches\n");
    expect(await parked("retry", "--all")).toBe("2 rows are due again\n");

    const rows = await database.query("SELECT attempt, scheduled_at <= now() AS due FROM outbox");
    expect(rows).toEqual([
      { attempt: 0, due: true },
      { attempt: 0, due: true },
    ]);
  });

  test("discards the rows of a topic, and keeps who did it and why", async () => {
    for (const topic of ["orders.created", "bills"]) {
      await insert(database, topic, `attempt = 5, scheduled_at = '${PARKED_UNTIL}', last_error = 'refused'`, topic);
    }

    expect(await parked("discard", "--topic", "orders.**", "--reason", "order was cancelled")).toBe("1 row is dead\n");

    const rows = await database.query("SELECT state, last_error FROM outbox ORDER BY sequence");
    expect(rows).toEqual([
      { state: "dead", last_error: expect.stringMatching(/^discarded by [^:]+@[^:]+: order was cancelled: refused/) },
      { state: "pending", last_error: "refused" },
    ]);
  });
});

describe("svc trace", () => {
  const trace = async (file: string, ...args: readonly string[]) =>
    (await run(addTraceCommand, file, "trace", ...args)).stdout;

  test("begins with the state, and the attempts that failed", async () => {
    const [, , parked] = SITUATIONS.find(([code]) => code === "parked") as (typeof SITUATIONS)[number];
    const id = await parked(database);
    const stdout = await trace(configOf(database), id);
    expect(stdout).toMatch(new RegExp(`^${id}  parked, 5 of 5 attempts failed`));
    expect(stdout).toContain("waits             parked: svc parked retry delivers it again");
  });

  test("finds a key in its stored form, and as the sender gave it", async () => {
    const given = `joined:${"k".repeat(300)}`;
    const insert = "INSERT INTO inbox (source, idempotency_key, payload) VALUES ('orders', $1, '{}') RETURNING id";
    const [row] = await database.query<{ id: string }>(insert, [storedKey(given)]);
    for (const text of [given, storedKey(given)])
      expect(await trace(configOf(database), text)).toContain(String(row?.id));
  });

  test("says that no relay runs, if the configuration switches it off", async () => {
    await database.query("INSERT INTO inbox (source, idempotency_key, payload) VALUES ('orders', 'a', '{}')");
    const file = configOf(database, { inbox: { relay: { enabled: false } } });
    expect(await trace(file, "a")).toContain("waits             inbox.relay.enabled is false");
    expect(JSON.parse(await trace(file, "a", "--json"))).toMatchObject([
      {
        state: "pending",
        source: "orders",
        events: [{ event: "received" }],
        waits: [{ code: "relay_disabled", text: expect.stringContaining("inbox.relay.enabled is false") }],
      },
    ]);
  });

  test("shows a message without its history if that cannot be read, and svc tail says so", async () => {
    const without = await migrated();
    await without.query("DROP TABLE outbox_history");
    const id = await insert(without, "k");
    expect(await trace(configOf(without), id)).toContain("its table cannot be read");
    await expect(run(addTailCommand, configOf(without), "tail")).rejects.toThrow(
      "the table outbox_history cannot be read",
    );
  });
});

test("without their tables svc status does not know the replicas, and svc audit names its table", async () => {
  const without = await migrated();
  await without.query("DROP TABLE outbox_process, outbox_figures, outbox_audit");
  const file = configOf(without);
  const { stdout, exitCode } = await run(addStatusCommands, file, "status");
  expect([exitCode, stdout]).toEqual([0, expect.stringContaining("the replicas are not known")]);
  await expect(run(addStatusCommands, file, "audit")).rejects.toThrow("the table outbox_audit cannot be read");
});

test("svc audit has what commands did, and who ran them", async () => {
  await database.query("TRUNCATE outbox_audit");
  const file = configOf(database);
  await run(addReplayCommand, file, "replay", "--state", "dead");
  await run(addDestinationCommands, file, "destinations", "pause", "receiver", "--reason", "they migrate");

  const { stdout } = await run(addStatusCommands, file, "audit", "--json");

  const entries = stdout
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as { actor: string });
  const actor = expect.stringMatching(/^[^ ]+@[^ ]+$/);
  expect(entries).toMatchObject([
    { action: "replay", actor },
    { action: "pause", actor, target: "receiver", detail: "until resumed: they migrate" },
  ]);
});
