import { describe, expect, test } from "@jest/globals";
import { cellConfig, servedCells } from "../../../src/config/cells.ts";
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
      `destinations:
  limited: { baseUrl: http://h, rateLimit: { perSecond: 10, burst: 15 } }
  slow: { baseUrl: http://h, rateLimit: { perSecond: 1, burst: 1 } }
  free: { baseUrl: http://h }
outbox: { capture: { enabled: true, mode: postgres-logical, stateDirectory: /state } }
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

  test("has its share of the rates that all replicas have together", () => {
    const { limited, slow, free } = configOf("us", config).destinations;
    expect(limited?.rateLimit).toEqual({ perSecond: 5, burst: 7 });
    expect(slow?.rateLimit).toEqual({ perSecond: 0.5, burst: 1 });
    expect(free?.rateLimit).toBeUndefined();
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

  test("is printed as it was written", () => {
    expect(printConfig(load(withCells(EU_US)))).toMatch(
      /cells:\n {4}- name: eu .*\n {6}schema: eu .*\n {4}- name: us .*\n {6}url: "?jdbc:postgresql:\/\/us.internal:6543\/other/,
    );
  });
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
    ["[{ name: a, schema: x, url: 'jdbc:postgresql://h/d' }]", "database.cells[0].schema", "not possible beside url"],
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
      expect.stringContaining("database.cells[0].schema: is not possible on sqlserver: give the cell a url"),
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
