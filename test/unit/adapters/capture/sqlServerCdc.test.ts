import { describe, expect, jest, test } from "@jest/globals";
import * as statements from "../../../../src/adapters/capture/sqlServerCdc.ts";
import { eventually } from "../../../support/eventually.ts";
import { parseByGrammar } from "../../../support/transactSql/grammar.ts";
import { misusedVariables } from "../../../support/transactSql/names.ts";
import { parseBatch } from "../../../support/transactSql/strictness.ts";
import { within } from "../../../support/within.ts";
import { lsn, objectUnknown, PASSWORD, ScriptedCdc } from "./scriptedCdc.ts";

/** The grammar's tables are built while it reads: the first long statements take seconds. */
jest.setTimeout(180_000);

/** Follows until the signal aborts. */
function follow(server: ScriptedCdc, { from = null as string | null, changed = {} } = {}) {
  const told: string[] = [];
  const stop = new AbortController();
  const ended = server.changeLog(changed).follow(
    from,
    {
      following: () => told.push("following"),
      inserted: () => told.push("inserted"),
      reached: (position) => told.push(`reached ${Number(position)}`),
    },
    stop.signal,
  );
  ended.catch(() => {});
  return { told, stop, ended };
}

const faultOf = (server: ScriptedCdc, changed = {}) =>
  within(
    15_000,
    "the fault",
    follow(server, { changed }).ended.then(
      () => "no fault",
      ({ message }: Error) => message,
    ),
  );

/** Names that are something else wherever they are not quoted. */
const ODD = { schema: "select", name: "it's ]here", idColumn: "Key]" };
const PLAIN = { schema: "dbo", name: "outbox", idColumn: "id" };

/** What is wrong on the server, and what the fault says beside a statement that fixes it. */
const FAULTS: readonly (readonly [name: string, server: Partial<ScriptedCdc>, text: string])[] = [
  ["CDC is off", { database: { is_cdc_enabled: false } }, "change data capture is off"],
  [
    "the user sees no table",
    { database: { is_cdc_enabled: true, is_tracked_by_cdc: null, user_name: "o'brien]" } },
    "that user o'brien] may see",
  ],
  [
    "the table has no instance",
    { database: { is_cdc_enabled: true, is_tracked_by_cdc: false, user_name: "relay" } },
    "has no capture instance",
  ],
  ["the columns may not be read", { instances: [] }, "membership in the gating role"],
  [
    "the user is no member of the gating role",
    { instances: [{ capture_instance: "i", role_name: "a role", create_date: new Date(0) }], lowest: lsn(0) },
    "ALTER ROLE [a role] ADD MEMBER [relay];",
  ],
];

describe.each([PLAIN, ODD])("faults of the table $name", (table) => {
  test.each(FAULTS)("%s", async (_, changed, text) => {
    const server = Object.assign(new ScriptedCdc(), changed);
    const fault = await faultOf(server, { table });
    expect(fault).toMatch(/^127\.0\.0\.1, database shop: /);
    expect(fault).toContain(text);
    expect(fault).not.toContain(PASSWORD);
    expect(server.isOpen).toBe(false);
    const proposals = fault.match(/\b(?:EXEC|GRANT|ALTER) [^;]*;/g) ?? [];
    expect(proposals.length).toBeGreaterThan(0);
    // Without the last `;`, which the grammar does not know behind GRANT.
    for (const proposal of proposals) expect(faultsOf(proposal.replace(/;$/, ""))).toEqual([]);
  });
});

test("the instance that is followed is the newest; a dropped one is a fault, and the next try finds another", async () => {
  const server = new ScriptedCdc();
  const instance = (name: string, at: number) => ({
    capture_instance: name,
    role_name: null,
    create_date: new Date(at),
  });
  server.instances = [instance("new", 2000), instance("old", 1000)];
  server.pollFault = objectUnknown();
  expect(await faultOf(server)).toContain("(error 208)");
  const { told, stop, ended } = follow(server);
  await eventually(() => told.includes("following"));
  stop.abort();
  await ended;
  expect(server.polled[0]).toBe("new");
});

test("a log without a position is followed from its first scan, a log that ends before the position from its end", async () => {
  const server = new ScriptedCdc();
  server.lowest = null;
  server.highest = null;
  const { told, stop, ended } = follow(server, { from: "no LSN" });
  await eventually(() => server.polled.length > 1);
  expect(told).toEqual(["following"]);
  server.highest = lsn(10);
  server.commit(2);
  await eventually(() => told.length === 3);
  server.highest = lsn(5);
  await eventually(() => told.length === 4);
  server.commit(2);
  await eventually(() => told.length === 6);
  stop.abort();
  await ended;
  expect(told).toEqual(["following", "inserted", "reached 11", "reached 5", "inserted", "reached 6"]);
});

/** Microsoft Learn: "Change data capture functions", and the session's and the server's. The stores use none of them. */
const FUNCTIONS = new Set([
  "SYSDATETIME",
  "USER_NAME",
  "sys.fn_cdc_get_max_lsn",
  "sys.fn_cdc_get_min_lsn",
  "sys.fn_cdc_increment_lsn",
  "sys.fn_cdc_map_lsn_to_time",
  "[cdc].[fn_cdc_get_all_changes_dbo_outbox]",
  "[cdc].[fn_cdc_get_all_changes_select_it's ]]here]",
]);

/** What is wrong with a batch, with line and column. */
function faultsOf(text: string, parameters: readonly string[] = []): readonly string[] {
  return [...strictFaults(text), ...misusedVariables(parseByGrammar(text), parameters)];
}

function strictFaults(text: string): readonly string[] {
  try {
    parseBatch(text);
    return [];
  } catch (error) {
    const lines = (error as Error).message.split("\n");
    return lines.filter(
      (line) => !FUNCTIONS.has(/^\d+:\d+ (.+) is no function that the store uses$/.exec(line)?.[1] ?? ""),
    );
  }
}

test.each([
  statements.DATABASE,
  statements.INSTANCES,
  statements.poll("dbo_outbox"),
  statements.poll("select_it's ]here"),
])("$name is T-SQL that declares its variables and writes nothing", ({ text, parameters }) => {
  expect(faultsOf(text, Object.keys(parameters))).toEqual([]);
  expect(text).not.toMatch(/\b(?:INSERT|UPDATE|DELETE|MERGE|ALTER|CREATE|DROP)\b/);
});
