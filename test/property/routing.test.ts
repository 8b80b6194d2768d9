import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { destinationOf } from "../../src/adapters/stores/postgres/fragments.ts";
import type { Routing, TopicRoute } from "../../src/adapters/stores/sql/routing.ts";
import { compileDestinationOf, compileRoutes } from "../../src/core/delivery/deliver.ts";
import { OUTBOX_COLUMNS, type RoutedRow } from "../../src/model/rows.ts";
import { createDatabase, onServer, type TestDatabase } from "../support/databases.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { settings } from "./settings.ts";

failOnLeaks();

/** Few, so that patterns and topics meet; most mean something to LIKE, to regular expressions or in a literal. */
const CHARACTERS = [..."ab.AB'\"\\%_[]^$|(){}?+-!: \n\r\t", "é", "e\u0301", "\u{1F600}", "ß"];
const text = fc.array(fc.oneof(fc.constantFrom("a", "b", "."), fc.constantFrom(...CHARACTERS)), { maxLength: 5 });
const patterns = fc
  .array(fc.oneof(text, fc.constantFrom(["*"], ["**"])), { maxLength: 5 })
  .map((parts) => parts.flat().join(""))
  .filter((pattern) => !pattern.includes("***"));
const topics = fc.array(fc.oneof(text, fc.constant(["*"])), { maxLength: 3 }).map((parts) => parts.flat().join(""));

/** Routes with topics, most of which were made from one of the patterns. */
const routesWithTopics = fc.array(patterns, { maxLength: 4 }).chain((some) =>
  fc.record({
    routes: fc.constant(some.map((topicPattern, n): TopicRoute => ({ topicPattern, destination: `it's \\ ${n % 3}` }))),
    topics: fc.array(
      fc
        .tuple(fc.constantFrom("*", ...some), fc.array(topics, { minLength: 7, maxLength: 7 }))
        .map(([pattern, fillings]) => {
          let filled = 0;
          return pattern.replaceAll(/\*+/g, () => fillings[filled++] ?? "");
        }),
      { minLength: 1, maxLength: 10 },
    ),
  }),
);

describe("the destination of a topic in PostgreSQL", () => {
  let database: TestDatabase;

  beforeAll(async () => {
    database = await createDatabase();
    await database.query(createCaseless);
  });

  afterAll(async () => {
    await database.drop();
  });

  const inDatabase = async (routes: readonly TopicRoute[], some: readonly (string | null)[], on = database) =>
    await ofRows(
      { routes, destinations: [] },
      some.map((topic) => ({ topic, destinationOverride: null })),
      on,
    );
  const ofRows = async (routing: Routing, some: readonly RoutedRow[], on = database) => {
    const rows = await on.query<{ destination: string }>(
      `SELECT ${destinationOf(routing, OUTBOX_COLUMNS, "t")} AS destination
       FROM (SELECT topic COLLATE "${CASELESS}" AS topic, name COLLATE "${CASELESS}" AS destination_override, n
         FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u(topic, name, n)) t ORDER BY n`,
      [some.map(({ topic }) => topic), some.map(({ destinationOverride }) => destinationOverride)],
    );
    return rows.map(({ destination }) => destination);
  };

  test("is that of the first route that matches, whatever the patterns and topics hold", async () => {
    await fc.assert(
      fc.asyncProperty(routesWithTopics, async ({ routes, topics: some }) => {
        const compiled = compileRoutes(routes);
        const expected = some.map((topic) => compiled.match(topic)?.destination ?? "");
        expect(await inDatabase(routes, some)).toEqual(expected);
      }),
      settings(),
    );
  });

  test("is that of its override where it has one, whatever the names hold", async () => {
    const names = fc.array(text, { maxLength: 3 }).map((parts) => parts.flat().join(""));
    const cases = fc.tuple(
      routesWithTopics,
      fc.uniqueArray(
        names.filter((name) => name !== ""),
        { maxLength: 4 },
      ),
      names,
    );
    await fc.assert(
      fc.asyncProperty(cases, async ([{ routes, topics: some }, destinations, other]) => {
        const rows = ["", other, ...destinations].flatMap((name) =>
          [null, ...some].map((topic) => ({ topic, destinationOverride: name === "" ? null : name })),
        );
        const find = compileDestinationOf(compileRoutes(routes), new Set(destinations));
        expect(await ofRows({ routes, destinations }, rows)).toEqual(rows.map((row) => find(row) ?? ""));
      }),
      settings(),
    );
  });

  test("is none without a topic, or without routes", async () => {
    const all = [{ topicPattern: "**", destination: "all" }];
    expect(await inDatabase(all, [null, "", "a"])).toEqual(["", "all", "all"]);
    expect(await inDatabase([], [null, "", "a"])).toEqual(["", "", ""]);
  });

  test("is the same where backslashes in literals are escapes", async () => {
    await using own = await createDatabase();
    await onServer(`ALTER DATABASE ${own.name} SET standard_conforming_strings = off`);
    await own.query(createCaseless);
    const routes = [
      { topicPattern: "a\\_'*", destination: "\\" },
      { topicPattern: "\\**.*", destination: "b'" },
    ];

    expect(await inDatabase(routes, ["a\\_'x", "a__'x", "\\x.y", "\\\\.", "x"], own)).toEqual(["\\", "", "b'", "", ""]);
  });
});

/** Under which texts are the same that are not letter for letter. */
const CASELESS = "caseless";
const createCaseless = `CREATE COLLATION "${CASELESS}" (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`;
