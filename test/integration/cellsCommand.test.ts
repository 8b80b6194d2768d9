import { describe, expect, test } from "@jest/globals";
import { addCellCommands } from "../../src/cli/cells.ts";
import { CellMap } from "../../src/core/cells/cellMap.ts";
import { bucketOf } from "../../src/model/cells.ts";
import { ConfigError } from "../../src/model/errors.ts";
import { inboxRow } from "../conformance/store/harness.ts";
import { runCommand } from "../support/commands.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { type TestCell, useCells } from "../support/movedCells.ts";
import { recordingLog } from "../support/recorders.ts";
import { type ConfigTree, databaseConfig, merged, ordersTo, useServices } from "../support/service.ts";
import { startTcpProxy } from "../support/tcpProxy.ts";

const setUp = useCells();
const services = useServices();
failOnLeaks();

const configOf = (cells: readonly TestCell[], overrides: ConfigTree = {}): string => {
  const [first] = cells as [TestCell];
  const database = {
    ...databaseConfig(first.database),
    cells: cells.map(({ name, database }) => ({ name, url: database.directJdbcUrl })),
  };
  return services.configFile(merged(ordersTo({ url: "http://127.0.0.1:9" }, { database }), overrides));
};

/** Runs `svc cells`. @throws what it throws */
async function cells(file: string, ...args: readonly string[]) {
  const { error, ...done } = await runCommand(addCellCommands, ["cells", ...args, "--config", file]);
  if (error !== undefined) throw error;
  return done;
}
const printed = async (file: string, ...args: readonly string[]) => (await cells(file, ...args)).stdout;
const counts = async (file: string) =>
  (JSON.parse(await printed(file, "list", "--json")) as { cells: { name: string; buckets: number }[] }).cells.map(
    ({ name, buckets }) => [name, buckets],
  );

/** The same database at another address, as a cell `b`. */
async function secondWayTo(cell: TestCell) {
  const { database } = cell;
  const proxy = await startTcpProxy(database);
  const url = `jdbc:postgresql://127.0.0.1:${proxy.port}/${database.name}`;
  const other: TestCell = { ...cell, name: "b", database: { ...database, directJdbcUrl: url } };
  return { cell: other, [Symbol.asyncDispose]: () => proxy.close() };
}

describe("svc cells", () => {
  test("gives a new cell its share, shows it, and takes it back, with a note of who did it", async () => {
    await using setup = await setUp();
    const { a, b } = setup;
    const file = configOf([a, b]);
    expect(await printed(file, "list")).toBe("cell  buckets  state\na     1024     answers\nb     0        answers\n");
    expect(await printed(file, "rebalance", "--dry-run")).toBe("would move:\n512 buckets from a to b\n");
    expect(await counts(file)).toEqual([
      ["a", 1024],
      ["b", 0],
    ]);

    expect(await cells(file, "rebalance")).toEqual({ stdout: "512 buckets moved\n", stderr: "", exitCode: 0 });
    expect(await counts(file)).toEqual([
      ["a", 512],
      ["b", 512],
    ]);
    expect(await printed(file, "rebalance")).toBe("no bucket has to be moved\n");

    expect(await printed(file, "drain", "b")).toBe(
      "512 buckets moved\nb has no bucket, and nothing waits in it: stop what inserts outbox rows there, and remove it from database.cells\n",
    );
    expect(await counts(file)).toEqual([
      ["a", 1024],
      ["b", 0],
    ]);
    expect(await a.database.query("SELECT action, target, detail FROM outbox_audit ORDER BY id")).toEqual([
      { action: "cells", target: "rebalance", detail: "512 buckets from a to b; moved 512, held 0, failed 0" },
      { action: "cells", target: "drain b", detail: "512 buckets from b to a; moved 512, held 0, failed 0" },
    ]);
  });

  test("moves nothing to a cell that a receiving process does not know", async () => {
    await using setup = await setUp();
    const { a, b } = setup;
    const file = configOf([a, b]);
    const alive = { version: "1", roles: ["ingest"], knowsCells: true, upMs: 0 };
    for (const { store } of [a, b]) await store.operations.beat({ ...alive, name: "new" }, []);
    await b.store.operations.beat({ ...alive, name: "relays only", roles: ["relay"] }, []);
    await a.store.operations.beat({ ...alive, name: "old" }, []);

    await expect(cells(file, "rebalance")).rejects.toThrow(
      "old stores received messages in the cell a without the cell b: nothing is moved",
    );
    await b.store.operations.beat({ ...alive, name: "old" }, []);
    expect(await printed(file, "rebalance")).toBe("512 buckets moved\n");
  });

  test("moves nothing between two names of one database", async () => {
    await using setup = await setUp();
    const { a } = setup;
    await using proxy = await secondWayTo(a);
    const file = configOf([a, proxy.cell]);
    // So that the first command is the one that gives the buckets out.
    await a.database.query("DELETE FROM outbox_bucket");
    for (const args of [["rebalance"], ["drain", "a"], ["move", "--bucket", "7", "--to", "b"]]) {
      await expect(cells(file, ...args)).rejects.toThrow(
        "the cells a and b have the same buckets: they are one database under two names, or one is a copy of the other: nothing is moved",
      );
    }
    expect(await a.database.query("SELECT state, count(*)::int FROM outbox_bucket GROUP BY state")).toEqual([
      { state: "open", count: 1024 },
    ]);
  });

  test("moves the buckets of a list or a key, and says what holds one, with exit code 1", async () => {
    await using setup = await setUp();
    const { a, b } = setup;
    const file = configOf([a, b]);
    await printed(file, "list");
    const bucket = bucketOf("k");
    expect(await printed(file, "of", "k")).toBe(`bucket ${bucket}: a\n`);
    await a.store.inbox.insert([inboxRow({ aggregateId: "k", consumption: "pull" })]);
    await a.database.query("INSERT INTO outbox (topic, payload) VALUES ('t', '')");
    expect(await cells(file, "move", "--key", "k", "--to", "b")).toMatchObject({
      stdout: `0 buckets moved\n1 bucket (${bucket}) stay in a: 1 row waits for a pull client\n`,
      exitCode: 1,
    });
    const others = [1, 2, 3, 9].filter((each) => each !== bucket);
    expect(await printed(file, "move", "--bucket", "1-3,9", "--to", "b")).toBe(`${others.length} buckets moved\n`);
    expect(await cells(file, "drain", "a", "--wait", "1s")).toMatchObject({
      stdout: expect.stringMatching(/^1019 buckets moved\n1 bucket .*\na is still needed/),
      exitCode: 1,
    });
    await a.database.query("UPDATE inbox SET state = 'processed'");
    expect(await printed(file, "drain", "a")).toBe(
      "1 bucket moved\na has no bucket. Keep it until its rows are delivered: 1 outbox rows\n",
    );
  });

  test("opens anew what a cell that is gone has taken along, when it is told so", async () => {
    await using setup = await setUp();
    const { a, b } = setup;
    await printed(configOf([a, b]), "move", "--bucket", "5", "--to", "b");
    const file = configOf([a]);
    expect(await printed(file, "list")).toContain(
      "the bucket 5 has left the cell a for b, which is not among the cells here\n",
    );
    await expect(cells(file, "rebalance")).rejects.toThrow(
      "1 bucket (5) left for the cell b, which is not among the cells here: nothing is moved. Add it to database.cells; if it is gone for good, --without b",
    );
    expect(await printed(file, "rebalance", "--without", "b")).toBe("1 bucket moved\n");
    expect(await counts(file)).toEqual([["a", 1024]]);
  });

  test("opens in the old cell what a new one, without any bucket, knows nothing of: nowhere else, and not by itself", async () => {
    await using setup = await setUp();
    const { a, b } = setup;
    const file = configOf([a, b]);
    await printed(file, "move", "--bucket", "5", "--to", "b");
    await b.database.query("DELETE FROM outbox_bucket");
    const reason =
      "the bucket 5 has left the cell a for b, which knows nothing of it: if that is the right database, run svc cells move --bucket 5 --to a";
    expect(await printed(file, "list")).toContain(`${reason}\n`);
    await expect(cells(file, "move", "--bucket", "5", "--to", "b")).rejects.toThrow(reason);
    expect(await printed(file, "move", "--bucket", "5", "--to", "a")).toBe("1 bucket moved\n");
    expect(await counts(file)).toEqual([
      ["a", 1024],
      ["b", 0],
    ]);
    expect(await printed(file, "move", "--bucket", "5", "--to", "b")).toBe("1 bucket moved\n");
  });

  test("moves nothing while a cell is away, and says which", async () => {
    await using setup = await setUp();
    const { a, b } = setup;
    await printed(configOf([a, b]), "list");
    const gone = { ...b, database: { ...b.database, directJdbcUrl: "jdbc:postgresql://127.0.0.1:9/gone" } };
    const file = configOf([a, gone]);
    expect(await printed(file, "list")).toMatch(/^b +0 +away\nb is away: .*ECONNREFUSED/m);
    await expect(cells(file, "rebalance")).rejects.toThrow(/^the cell b is away \(.*\): nothing is moved$/);
  });

  test.each([
    [["drain", "c"], 'there is no cell "c": the cells are a, b'],
    [["move", "--bucket", "1", "--to", "c"], 'there is no cell "c"'],
    [["move", "--bucket", "1024", "--to", "b"], "umbers from 0 to 1023"],
    [["move", "--bucket", "3-1", "--to", "b"], "umbers from 0 to 1023"],
    [["move", "--to", "b"], "give --bucket or --key"],
    [["move", "--key", "", "--to", "b"], "no message has that key"],
    [["of", ""], "no message has that key"],
    [["rebalance", "--wait", "2h"], "at most 60s"],
  ])("refuses %j", async (args, message) => {
    await using setup = await setUp();
    await expect(cells(configOf([setup.a, setup.b]), ...args)).rejects.toThrow(message);
  });

  test("needs cells", async () => {
    await using setup = await setUp();
    const file = services.configFile(
      ordersTo({ url: "http://127.0.0.1:9" }, { database: databaseConfig(setup.a.database) }),
    );
    await expect(cells(file, "list")).rejects.toBeInstanceOf(ConfigError);
  });
});

test("a process that has one database as two cells logs that once", async () => {
  await using setup = await setUp();
  const { log, lines } = recordingLog();
  const map = new CellMap({ cells: [setup.a, { ...setup.a, name: "b" }], log });
  await map.refresh();
  await map.refresh();
  expect(lines.filter(({ level }) => level === "error").map(({ message }) => message)).toEqual(["cells are mixed up"]);
});
