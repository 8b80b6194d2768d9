import { describe, expect, test } from "@jest/globals";
import { cellConfig, requireIdentity, servedCells } from "../../../src/config/cells.ts";
import { printConfig } from "../../../src/config/print.ts";
import type { Config } from "../../../src/config/types.ts";
import { DATABASE, inspect, load } from "./support.ts";

const withCells = (cells: string, rest = "") => `${DATABASE}  cells: ${cells}\n${rest}`;
const EU_US = "[{ name: eu, schema: eu }, { name: us, url: 'jdbc:postgresql://us.internal:6543/other' }]";

function configOf(name: string, { database, ...config }: Config): Config {
  const cell = database.cells.find((each) => each.name === name);
  if (cell === undefined) throw new Error(`no cell ${name}`);
  return cellConfig({ ...config, database }, cell);
}

describe("the configuration of a cell", () => {
  const { config } = load(
    withCells(
      EU_US,
      `outbox: { capture: { enabled: true, mode: postgres-logical, stateDirectory: /state } }
`,
    ),
  );

  test("is that of its database, or of its schema", () => {
    expect(configOf("eu", config).database.target).toEqual({ ...config.database.target, currentSchema: "eu" });
    expect(configOf("us", config).database.target).toMatchObject({
      hosts: [{ host: "us.internal", port: 6543 }],
      database: "other",
      currentSchema: undefined,
    });
    expect(configOf("us", config).database.cells).toEqual([]);
  });

  test("captures from its own database under names of its own", () => {
    const [eu, us] = [configOf("eu", config).outbox.capture, configOf("us", config).outbox.capture];
    const { slot, publication, identity } = config.outbox.capture;
    expect(eu).toMatchObject({
      schema: "eu",
      slot: `${slot}_eu`,
      connection: { hostname: "db.internal", database: "svc" },
    });
    expect(us).toMatchObject({
      schema: "public",
      publication: `${publication}_us`,
      identity: `${identity}_us`,
      connection: { hostname: "us.internal", port: 6543, database: "other", username: "svc" },
    });
  });

  test("is printed in its spelling", () => {
    expect(printConfig(load(withCells(EU_US)))).toMatch(
      /cells:\n {4}- name: eu .*\n {6}schema: eu .*\n {4}- name: us .*\n {6}url: "?jdbc:postgresql:\/\/us.internal:6543\/other/,
    );
  });
});

describe("a number of cells", () => {
  const inSchema = (schema: string, count: string) => withCells(count).replace("/svc", `/svc?currentSchema=${schema}`);

  test.each([
    ["of the file", load(withCells("3")), "svc.yml, line 5"],
    ["with a placeholder", load(withCells(`\${CELLS:-3}`)), "svc.yml, line 5"],
    ["of a variable", load(withCells(EU_US), { env: { SVC_DATABASE_CELLS: "3" } }), "SVC_DATABASE_CELLS"],
  ])("%s stands for schemas of database.url", (_, loaded, origin) => {
    const { target, cells } = loaded.config.database;
    const names = ["public_0", "public_1", "public_2"];
    expect(cells).toEqual(names.map((name) => ({ name, schema: name, target: { ...target, currentSchema: name } })));
    expect(printConfig(loaded)).toMatch(new RegExp(`- name: public_2 +# ${origin}\n +schema: public_2 +# ${origin}\n`));
  });

  test("may be one", () => {
    const { cells } = load(inSchema("shop", "1")).config.database;
    expect(cells.map(({ name, schema }) => [name, schema])).toEqual([["shop_0", "shop_0"]]);
  });

  test.each([
    [withCells("0"), "expected a list, or a whole number from 1 to 1024, found 0"],
    [withCells("1.5"), 'expected a list, or a whole number from 1 to 1024, found "1.5"'],
    [
      inSchema("Shop", "2"),
      "cannot be a number with the schema Shop, which gives the cells their names (expected lower",
    ],
    [inSchema("s".repeat(61), "11"), "at most 63 characters): list the cells"],
    [
      withCells("2").replace(
        "jdbc:postgresql://db.internal:5432/svc",
        "jdbc:sqlserver://h;databaseName=d\n  type: sqlserver",
      ),
      "cannot be a number on sqlserver: list the cells, each with a url",
    ],
  ])("%s", (yaml, message) => {
    expect(inspect(yaml).problems).toEqual([expect.stringMatching(/^database\.cells: /)]);
    expect(inspect(yaml).problems.join()).toContain(message);
  });

  test("of a URL that cannot be read has no problem of its own", () => {
    const { problems } = inspect(withCells("2").replace("jdbc:", ""));
    expect(problems).toEqual([expect.stringMatching(/^database\.url: /)]);
  });
});

test("a database is refused as another cell than it was, and taken as the same one", () => {
  const b = { position: 2, name: "b", cells: 2 };
  const is = "this database is cell 2 of 2 (b), but the configuration";
  for (const [own, refusal] of [
    [{ ...b, name: "c" }, `${is} makes it cell 2 of 2 (c)`],
    [{ ...b, cells: 3 }, `${is} makes it cell 2 of 3 (b)`],
    [undefined, `${is} has no cells: restore database.cells`],
  ] as const)
    expect(() => requireIdentity(b, own)).toThrow(refusal);
  requireIdentity(b, { ...b });
  requireIdentity(undefined, b);
});

describe("the cells that a process serves", () => {
  const { config } = load(withCells(EU_US));
  const names = (named?: string) => servedCells(config, named).map(({ name }) => name);

  test("are all, or those named, in the order of the configuration", () => {
    expect([names(), names("us"), names("us, eu")]).toEqual([["eu", "us"], ["us"], ["eu", "us"]]);
  });

  test.each([
    ["uk", 'there is no cell "uk": the cells are eu, us'],
    ["eu,,us", 'there is no cell ""'],
  ])("%s is none of them", (named, message) => {
    expect(() => names(named)).toThrow(message);
  });

  test("are none without cells", () => {
    expect(servedCells(load(DATABASE).config, undefined)).toEqual([]);
    expect(() => servedCells(load(DATABASE).config, "eu")).toThrow("database.cells has none");
  });
});

describe("what stops the start in the cells", () => {
  test.each([
    ["[{ name: a, schema: x }, { name: a, schema: y }]", "database.cells[1].name", "names a second cell a"],
    ["[{ name: a, schema: x }, { name: b, schema: x }]", "database.cells[1]", "same database and schema as the cell a"],
    ["[{ name: a }, { name: b, url: 'jdbc:postgresql://db.internal:5432/svc' }]", "database.cells[1]", "as the cell a"],
    [
      "[{ name: a, schema: x, url: 'jdbc:postgresql://h/d' }]",
      "database.cells[0].schema",
      "cannot be combined with url",
    ],
    ["[{ name: a, url: 'jdbc:sqlserver://h;databaseName=d' }]", "database.cells[0].url", "is a URL of sqlserver"],
    ["[{ name: A, schema: x }]", "database.cells[0].name", "lower-case letters"],
    ["[{ schema: x }]", "database.cells[0].name", "is required"],
  ])("%s", (cells, path, message) => {
    const { problems } = inspect(withCells(cells));
    expect(problems).toEqual([expect.stringContaining(message)]);
    expect(problems[0]?.split(": ", 1)).toEqual([path]);
  });

  test("a schema on SQL Server", () => {
    const yaml = withCells("[{ name: a, schema: x }]", "").replace(
      "jdbc:postgresql://db.internal:5432/svc",
      "jdbc:sqlserver://h;databaseName=d",
    );
    expect(inspect(yaml.replace("database:\n", "database:\n  type: sqlserver\n")).problems).toEqual([
      expect.stringContaining("database.cells[0].schema: works on postgresql only: give the cell a url"),
    ]);
  });

  test("one place to capture from for several databases", () => {
    const capture =
      "outbox: { capture: { enabled: true, mode: postgres-logical, stateDirectory: /s, connection: { hostname: h } } }\n";
    expect(inspect(withCells(EU_US, capture)).problems).toEqual([
      expect.stringContaining("outbox.capture.connection.hostname: cannot be set with cells in several databases"),
    ]);
  });

  test("no password of a cell's URL is shown", () => {
    const { problems } = inspect(withCells("[{ name: a, url: 'jdbc:postgresql://u:hunter2@h/d' }]"));
    expect(problems.join()).toContain("cells[0].url");
    expect(problems.join()).not.toContain("hunter2");
  });
});
