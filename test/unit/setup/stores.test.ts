import { describe, expect, jest, test } from "@jest/globals";
import type { Config } from "../../../src/config/types.ts";
import { ConfigError, StoreError } from "../../../src/model/errors.ts";
import type { CheckedTables, SchemaNeeds, Store } from "../../../src/ports/store.ts";
import { prepareStore } from "../../../src/setup/stores.ts";
import { silentLog } from "../../support/recorders.ts";

const UNAVAILABLE = new StoreError("unavailable", "migrate: the connection broke");

/** Starts against a store whose migrations fail with these errors, one after another, and then pass. */
function preparing(
  failures: readonly Error[],
  startupTimeoutMs = 10_000,
  part?: Parameters<typeof prepareStore>[5],
  routes: readonly object[] = [],
) {
  const left = [...failures];
  const waitUntilReady = jest.fn(async (_timeoutMs: number) => {});
  const migrate = jest.fn(async () => {
    const failure = left.shift();
    if (failure !== undefined) throw failure;
    return [];
  });
  const checkColumns = jest.fn(async (_tables: CheckedTables, _needs: SchemaNeeds) => {});
  const store = {
    waitUntilReady,
    schema: { migrate, checkColumns, cell: async () => undefined },
    history: { isAvailable: true },
  } as unknown as Store;
  const config = {
    database: { startupTimeoutMs, migrate: true },
    outbox: { history: "off" },
    sources: {},
    destinations: {},
    routes: [{ topicPattern: "a", destination: "d" }, ...routes],
  } as unknown as Config;
  const stopping = new AbortController();
  const prepared = prepareStore(store, config, new Set(["poller"]), silentLog, stopping.signal, part);
  return { prepared, waitUntilReady, migrate, checkColumns, stopping };
}

describe("the start", () => {
  test("waits again for a database that goes away while the tables are prepared", async () => {
    const { prepared, waitUntilReady, checkColumns } = preparing([UNAVAILABLE, UNAVAILABLE]);
    await prepared;
    expect(waitUntilReady).toHaveBeenCalledTimes(3);
    expect(checkColumns).toHaveBeenCalledTimes(1);
    for (const [timeoutMs] of waitUntilReady.mock.calls) expect(Number.isInteger(timeoutMs)).toBe(true);
  });

  test.each([
    ["everything", ["outbox", "history", "destinations"]],
    ["control", ["destinations"]],
    ["cell", ["outbox", "history"]],
  ] as const)("checks the tables of what the store has: %s", async (holds, tables) => {
    const { prepared, checkColumns } = preparing([], undefined, { holds });
    await prepared;
    expect(checkColumns.mock.calls[0]?.[0]).toEqual(tables);
  });

  test.each([
    [false, []],
    [true, [{ topicPattern: "b", destinations: [{ name: "d" }] }]],
  ])("needs the columns of deliveries if a route has a list: %s", async (lists, routes) => {
    const { prepared, checkColumns } = preparing([], undefined, undefined, routes);
    await prepared;
    expect(checkColumns.mock.calls[0]?.[1]).toMatchObject({ lists });
  });

  test("does not continue past its time", async () => {
    const { prepared, migrate } = preparing([UNAVAILABLE, UNAVAILABLE], 50);
    await expect(prepared).rejects.toBe(UNAVAILABLE);
    expect(migrate).toHaveBeenCalledTimes(1);
  });

  test.each([
    ["a missing right", new StoreError("schema", "permission denied")],
    ["a missing column", new ConfigError([])],
  ])("ends at once where trying again does not help: %s", async (_what, error) => {
    const { prepared, migrate } = preparing([error]);
    await expect(prepared).rejects.toBe(error);
    expect(migrate).toHaveBeenCalledTimes(1);
  });

  test("ends when the process has to stop meanwhile", async () => {
    const { prepared, stopping } = preparing([UNAVAILABLE]);
    const reason = new Error("stop");
    stopping.abort(reason);
    await expect(prepared).rejects.toBe(reason);
  });
});
