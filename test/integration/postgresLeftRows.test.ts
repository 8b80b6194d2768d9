import { afterAll, beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import { createRowChanges } from "../../roles/finishedRows.ts";
import { addParkedCommands } from "../../src/cli/parked.ts";
import { addReplayCommand } from "../../src/cli/replay.ts";
import { type MessageId, PARKED_UNTIL } from "../../src/model/rows.ts";
import type { LeftRow } from "../../src/ports/finishedRows.ts";
import type { Store } from "../../src/ports/store.ts";
import { runCommand } from "../support/commands.ts";
import type { TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { DEFAULT_NAMES, migratedDatabase, withStoreOn } from "../support/postgresHarness.ts";
import { recordingAudit, silentLog } from "../support/recorders.ts";
import { databaseConfig, merged, ordersTo, useServices } from "../support/service.ts";

/** Rows that a trigger of the owner leaves as they are, whatever way it takes, count as left, and are named. */

const services = useServices("block");
failOnLeaks("block");

let database: TestDatabase;
let file: string;
beforeAll(async () => {
  database = await migratedDatabase();
  const other = { destinations: { other: { baseUrl: "http://127.0.0.1:9" } } };
  const tree = ordersTo({ url: "http://127.0.0.1:9" }, { database: databaseConfig(database) });
  file = services.configFile(merged(tree, other));
  await database.query(
    `CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN
       IF OLD.topic = 'null' THEN RETURN NULL; END IF;
       IF OLD.topic = 'old' THEN RETURN OLD; END IF;
       IF OLD.topic = 'keep' THEN NEW.state := OLD.state; NEW.scheduled_at := OLD.scheduled_at; END IF;
       IF OLD.topic = 'raise' THEN RAISE EXCEPTION 'hands off'; END IF;
       IF OLD.topic = 'there' THEN NEW.destination_override := OLD.destination_override; END IF;
       RETURN NEW;
     END $$`,
  );
  await database.query("CREATE TRIGGER hold BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION hold()");
});
afterAll(() => database.drop());
beforeEach(() => database.query("TRUNCATE outbox, outbox_history, outbox_job, outbox_audit RESTART IDENTITY"));

const HELD = ["null", "old", "keep", "raise"] as const;
const KEPT = "a trigger on the table returns NULL or OLD, or keeps the old values";
const REASONS = { null: KEPT, old: KEPT, keep: KEPT, raise: "hands off" };
const NEVER = new AbortController().signal;

/** Inserts a row for each topic. @param set its state, as further columns and their values */
async function insert(topics: readonly string[], columns: string, values: string): Promise<readonly MessageId[]> {
  const ids: MessageId[] = [];
  for (const topic of topics) {
    const [row] = await database.query(
      `INSERT INTO outbox (topic, payload, attempt, ${columns}) VALUES ($1, '1', 5, ${values}) RETURNING id`,
      [topic],
    );
    ids.push(row?.id as MessageId);
  }
  return ids;
}
const dead = (...topics: readonly string[]) => insert(topics, "state", "'dead'");
const parked = (...topics: readonly string[]) => insert(topics, "scheduled_at", `'${PARKED_UNTIL}'`);
const waiting = (...topics: readonly string[]) => insert(topics, "scheduled_at", "now() + interval '1 hour'");

const withStore = <T>(body: (store: Store) => Promise<T>) => withStoreOn(database, DEFAULT_NAMES, body);
const noted = () => database.query("SELECT outbox_id AS id FROM outbox_history");

const CHANGES = {
  replay: {
    insert: dead,
    change: async (store: Store, ids, onLeft) => {
      return await store.replay.move(await store.replay.begin(), ids, "alice", undefined, onLeft);
    },
  },
  retry: { insert: parked, change: (store: Store, ids, onLeft) => store.parked.retry(ids, "alice", onLeft) },
  discard: { insert: parked, change: (store: Store, ids, onLeft) => store.parked.discard(ids, "alice", "no", onLeft) },
  hasten: { insert: waiting, change: (store: Store, ids, onLeft) => store.parked.hasten(ids, "alice", onLeft) },
  "discard of pending rows": {
    insert: waiting,
    change: (store: Store, ids, onLeft) => store.parked.discardPending(ids, "alice", "no", onLeft),
  },
} as const satisfies Record<string, Change>;

interface Change {
  readonly insert: (...topics: readonly string[]) => Promise<readonly MessageId[]>;
  readonly change: (
    store: Store,
    ids: readonly MessageId[],
    onLeft: (rows: readonly LeftRow[]) => void,
  ) => Promise<number>;
}

describe("of rows that triggers hold", () => {
  test.each(Object.keys(CHANGES) as (keyof typeof CHANGES)[])(
    "a %s counts none, notes none in the history, and names each",
    async (name) => {
      const { insert: add, change }: Change = CHANGES[name];
      const ids = await add("free", ...HELD);
      const left: LeftRow[] = [];

      const changed = await withStore(async (store) => {
        await store.schema.checkColumns(["outbox", "history"]);
        return await change(store, ids, (rows) => left.push(...rows));
      });

      expect(changed).toBe(1);
      expect(await noted()).toEqual([{ id: ids[0] }]);
      const reasons = new Map(left.map(({ id, reason }) => [id, reason]));
      expect(HELD.map((topic, n) => [topic, reasons.get(ids[n + 1] as MessageId)])).toEqual(
        HELD.map((topic) => [topic, expect.stringContaining(REASONS[topic])]),
      );
      expect(left).toHaveLength(HELD.length);
    },
  );

  test.each(HELD)("one that is alone ('%s') is refused with the reason, whatever is done with it", async (topic) => {
    await withStore(async (store) => {
      const { messages } = changesOn(store);
      const [finished] = await dead(topic);
      const [held] = await parked(topic);
      const [later] = await waiting(topic);
      const results = [
        await messages.replay(finished as MessageId, "alice", undefined, NEVER),
        await messages.retry(held as MessageId, "alice"),
        await messages.retry(later as MessageId, "alice"),
        await messages.discard(held as MessageId, "alice", "no"),
      ];
      const reason = expect.stringMatching(new RegExp(`^the row is left as it is: .*${REASONS[topic]}`));
      expect(results).toEqual(results.map(() => ({ kind: "refused", reason })));
    });
  });
});

function changesOn(store: Store) {
  const config = { destinations: {}, routes: [] };
  const context = { config, store, redact: (text: string) => text, audit: recordingAudit().audit, log: silentLog };
  return createRowChanges(context as unknown as Parameters<typeof createRowChanges>[0]);
}

test("a row that does not take another destination is left where it is, and the others go there", async () => {
  const [there] = await dead("there", "free");
  const { stdout } = await svc(addReplayCommand, "replay", "--state", "dead", "--to", "other");
  expect(stdout).toMatch(new RegExp(`^1 row moved to pending; 1 row .*: ${there}: .* another destination$`, "m"));
  expect(await database.query("SELECT topic, state, destination_override FROM outbox ORDER BY topic")).toEqual([
    { topic: "free", state: "pending", destination_override: "other" },
    { topic: "there", state: "dead", destination_override: null },
  ]);
});

describe("the command", () => {
  test.each([
    ["without a cap", []],
    ["of a row a batch", ["--per-second", "4"]],
  ])("of a replay names what it left, and ends, %s", async (_, cap) => {
    const ids = await dead("free", ...HELD, "free");
    const { stdout } = await svc(addReplayCommand, "replay", "--state", "dead", ...cap);
    expect(stdout).toMatch(/^2 rows moved to pending; 4 rows were left as they are: /m);
    for (const id of ids.slice(1, 5)) expect(stdout).toContain(`${id}: `);

    const [job] = await database.query("SELECT state, moved::int, last_error FROM outbox_job");
    expect(job).toMatchObject({ state: "done", moved: 2, last_error: expect.stringContaining("hands off") });
    expect((await svc(addReplayCommand, "replay", "--jobs")).stdout).toContain("4 rows were left as they are");
  });

  test("of a replay fails where it moved none", async () => {
    await dead("null");
    await expect(svc(addReplayCommand, "replay", "--state", "dead")).rejects.toThrow(
      `0 rows moved to pending; 1 row was left as it is: `,
    );
  });

  test("names five, and counts the others", async () => {
    await dead("free", ...Array.from({ length: 7 }, () => "old"));
    const { stdout } = await svc(addReplayCommand, "replay", "--state", "dead");
    expect(stdout).toMatch(/^1 row moved to pending; 7 rows .*; and 2 more$/m);
  });

  test("of a resumed replay names what was left before it was interrupted", async () => {
    await dead("old");
    await svc(addReplayCommand, "replay", "--state", "dead").catch(() => {});
    const [job] = await database.query("UPDATE outbox_job SET state = 'interrupted', moved = 1 RETURNING id");
    const { stdout } = await svc(addReplayCommand, "replay", "--resume", job?.id as string);
    expect(stdout).toMatch(/^1 row moved to pending; 1 row was left as it is: /m);
  });

  test("of parked rows names what it left", async () => {
    await parked("free", "null", "raise");
    const retried = (await svc(addParkedCommands, "parked", "retry", "--all")).stdout;
    expect(retried).toMatch(/^1 row is due again; 2 rows were left as they are: .*hands off/m);
    await parked("free", "old");
    const discarded = (await svc(addParkedCommands, "parked", "discard", "--all", "--reason", "no")).stdout;
    expect(discarded).toMatch(/^1 row is dead; 3 rows were left as they are: /m);
    const audit = await database.query("SELECT detail FROM outbox_audit ORDER BY id");
    expect(audit).toEqual([
      { detail: expect.stringMatching(/^1 rows .*2 rows were/) },
      { detail: expect.stringMatching(/^1 rows .*3 rows were/) },
    ]);
  });
});

/** @throws what ends the command */
async function svc(add: Parameters<typeof runCommand>[0], ...words: readonly string[]) {
  const { stdout, error } = await runCommand(add, [...words, "--config", file]);
  if (error !== undefined) throw error;
  return { stdout };
}
