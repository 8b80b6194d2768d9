import { describe, expect, jest, test } from "@jest/globals";
import * as faults from "../../../../src/adapters/capture/sqlserver-cdc/faults.ts";
import * as statements from "../../../../src/adapters/capture/sqlserver-cdc/statements.ts";
import { parseByGrammar } from "../../../support/transactSql/grammar.ts";
import { misusedVariables } from "../../../support/transactSql/names.ts";
import { parseBatch } from "../../../support/transactSql/strictness.ts";

/** Every statement that the capture sends to SQL Server, and every one that its messages propose, is read by a grammar of T-SQL. */

/** The grammar's tables are built while it reads: the first long statements take seconds. */
jest.setTimeout(180_000);

const PLAIN = { schema: "dbo", name: "outbox", idColumn: "id" };
/** Names that are something else wherever they are not quoted. */
const ODD = { schema: "select", name: "it's ]here", idColumn: "Key]" };

/**
 * Microsoft Learn: the functions of change data capture ("Change data capture functions"), the session's and the server's. The stores use none of them.
 */
const FUNCTIONS = new Set([
  "DB_ID",
  "SERVERPROPERTY",
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

/** The statements in a message. */
function proposalsIn(message: string): readonly string[] {
  return message.match(/\b(?:EXEC|GRANT|ALTER) [^;]*;/g) ?? [];
}

/** Without the last `;`, which the grammar does not know behind GRANT. */
const proposalFaults = (proposal: string) => faultsOf(proposal.replace(/;$/, ""));

describe("statements", () => {
  const sent = [
    ...Object.values(statements).filter(
      (value): value is statements.Statement => typeof value === "object" && "parameters" in value,
    ),
    statements.poll("dbo_outbox"),
    { ...statements.poll("select_it's ]here"), name: "poll at an odd name" },
  ].map((statement) => [statement.name, statement] as const);

  test.each(sent)("%s is T-SQL and declares its variables", (_, { text, parameters }) => {
    expect(faultsOf(text, parameters)).toEqual([]);
  });

  test("are all there are", () => {
    expect(sent.map(([name]) => name).toSorted()).toEqual([
      "capture instances",
      "capture job",
      "capture job's activity",
      "database",
      "poll",
      "poll at an odd name",
      "range",
    ]);
  });

  test("write nothing", () => {
    for (const [, { text }] of sent) expect(text).not.toMatch(/\b(?:INSERT|UPDATE|DELETE|MERGE|ALTER|CREATE|DROP)\b/);
  });
});

describe("proposals", () => {
  const alone = Object.entries(statements).flatMap(([name, value]) =>
    typeof value === "string" && name !== "NO_LSN" ? [[name, value] as const] : [],
  );

  test.each(alone)("%s is T-SQL", (_, text) => {
    expect(proposalsIn(text).join(" ")).toBe(text);
    expect(proposalFaults(text)).toEqual([]);
  });

  test.each([
    ["database not enabled", faults.databaseNotEnabled("shop")],
    ["table not enabled", faults.tableNotEnabled(PLAIN)],
    ["table not enabled, odd names", faults.tableNotEnabled(ODD)],
    ["table not visible", faults.tableNotVisible(PLAIN, "shop", "relay")],
    ["table not visible, odd names", faults.tableNotVisible(ODD, "shop", "o'brien]")],
    ["not readable", faults.notReadable(PLAIN, "relay")],
    ["not readable, with a role", faults.notReadable(PLAIN, "relay", "cdc_reader")],
    ["not readable, odd names", faults.notReadable(ODD, "o'brien]", "a role")],
  ])("in the message of %s are T-SQL", (_, { message }) => {
    const proposals = proposalsIn(message);
    expect(proposals.length).toBeGreaterThan(0);
    expect(proposals.flatMap(proposalFaults)).toEqual([]);
  });
});
