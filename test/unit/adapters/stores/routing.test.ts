import { describe, expect, test } from "@jest/globals";
import { destinationOf as inPostgres } from "../../../../src/adapters/stores/postgres/fragments.ts";
import { NO_ROUTING, type Routing } from "../../../../src/adapters/stores/sql/routing.ts";
import { destinationOf as inSqlServer } from "../../../../src/adapters/stores/sqlserver/fragments.ts";
import { OUTBOX_COLUMNS } from "../../../../src/model/rows.ts";

const to = (...patterns: readonly string[]): Routing => ({
  routes: patterns.map((topicPattern, n) => ({ topicPattern, destination: `d${n}` })),
  destinations: [],
});
const WITHOUT = { ...OUTBOX_COLUMNS, destinationOverride: null };

/** What a row whose topic passes the test of the only pattern gets. */
function testOf(destinationOf: typeof inPostgres, pattern: string) {
  const [, condition, destination] =
    /^CASE WHEN (.*) THEN N?'(.*)' ELSE/s.exec(destinationOf(to(pattern), WITHOUT, "t")) ?? [];
  return [condition, destination];
}

describe("the destination of a topic on PostgreSQL", () => {
  const T = '(t.topic::text COLLATE "C")';

  test.each([
    ["orders.paid", `${T} = 'orders.paid'`],
    ["", `${T} = ''`],
    ["**", `${T} IS NOT NULL`],
    ["orders.**", `starts_with(${T}, 'orders.')`],
    ["it's.**", `starts_with(${T}, 'it''s.')`],
    ["a\\b", `${T} = E'a\\\\b'`],
    ["**.audit_%", `${T} LIKE E'%.audit\\\\_\\\\%'`],
    ["a.*.b-*", `${T} LIKE 'a._%.b-_%' AND length(${T}) - length(replace(${T}, '.', '')) = 2`],
    ["a.*.**", `${T} LIKE 'a._%.%' AND ${T} ~ E'^a\\\\.[^.]+\\\\..*$'`],
  ])("is tested for %j", (pattern, condition) => {
    expect(testOf(inPostgres, pattern)).toEqual([condition, "d0"]);
  });

  test.each([["a\0**"], ["\ud83d**"]])(
    "is unknown for %j, which no text of the database can be compared with",
    (pattern) => {
      const [condition, destination] = testOf(inPostgres, pattern);
      expect(destination).toBe("");
      expect(condition).not.toMatch(/\0|\p{Surrogate}/u);
    },
  );
});

describe("the destination of a topic on SQL Server", () => {
  const T = "CONVERT(nvarchar(max), t.topic) COLLATE Latin1_General_100_BIN2";
  const like = (pattern: string) => `${T} LIKE N'${pattern}' ESCAPE N'\\'`;
  const dots = (bytes: number) => `DATALENGTH(${T}) - DATALENGTH(REPLACE(${T}, N'.', N'')) = ${bytes}`;

  test.each([
    ["orders.paid", like("orders.paid")],
    ["", like("")],
    ["**", like("%")],
    ["orders.**", like("orders.%")],
    ["it's \\[50%]_", like("it''s \\\\\\[50\\%\\]\\_")],
    ["orders.*", `${like("orders._%")} AND ${dots(2)}`],
    ["a.*.b-*", `${like("a._%.b-_%")} AND ${dots(4)}`],
  ])("is tested for %j", (pattern, condition) => {
    expect(testOf(inSqlServer, pattern)).toEqual([condition, "d0"]);
  });

  test("is unknown where a pattern has both * and **, for every topic that might match, also to later routes", () => {
    expect(inSqlServer(to("a.*.**", "**"), WITHOUT, "t")).toBe(
      `CASE WHEN ${like("a._%.%")} THEN N'' WHEN ${like("%")} THEN N'd1' ELSE N'' END COLLATE Latin1_General_100_BIN2`,
    );
  });
});

test("there is none without routes", () => {
  expect(inPostgres(NO_ROUTING, WITHOUT, "t")).toBe("''");
  expect(inSqlServer(NO_ROUTING, WITHOUT, "t")).toBe("N'' COLLATE Latin1_General_100_BIN2");
});

test("an override wins over the routes; one that names no destination gives none", () => {
  const routing = { ...to("**"), destinations: ["d*", "it's"] };
  expect(inPostgres(routing, OUTBOX_COLUMNS, "t")).toBe(
    `CASE WHEN (nullif(t.destination_override::text, '') COLLATE "C") IS NULL ` +
      `THEN CASE WHEN (t.topic::text COLLATE "C") IS NOT NULL THEN 'd0' ELSE '' END ` +
      `ELSE CASE WHEN (nullif(t.destination_override::text, '') COLLATE "C") = 'd*' THEN 'd*' ` +
      `WHEN (nullif(t.destination_override::text, '') COLLATE "C") = 'it''s' THEN 'it''s' ELSE '' END END`,
  );
  const override = "CONVERT(nvarchar(max), NULLIF(t.destination_override, N'')) COLLATE Latin1_General_100_BIN2";
  expect(inSqlServer(routing, OUTBOX_COLUMNS, "t")).toBe(
    `CASE WHEN ${override} IS NULL ` +
      `THEN CASE WHEN CONVERT(nvarchar(max), t.topic) COLLATE Latin1_General_100_BIN2 LIKE N'%' ESCAPE N'\\' THEN N'd0' ELSE N'' END ` +
      `ELSE CASE WHEN ${override} LIKE N'd*' ESCAPE N'\\' THEN N'd*' WHEN ${override} LIKE N'it''s' ESCAPE N'\\' THEN N'it''s' ELSE N'' END END ` +
      "COLLATE Latin1_General_100_BIN2",
  );
});
