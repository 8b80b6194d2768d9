import { expect, test } from "@jest/globals";
import { type HistoryStatements, SqlHistory } from "../../../../../src/adapters/stores/sql/history.ts";
import type { StatementRunner } from "../../../../../src/adapters/stores/sql/rows.ts";
import { StoreError } from "../../../../../src/model/errors.ts";
import { ManualClock, recordingLog } from "../../../../support/recorders.ts";

const LOCKED = new StoreError("contention", "canceled while waiting for a lock");
const STATEMENTS = { plain: "plain", noting: "noting" };

async function available() {
  const clock = new ManualClock();
  const { log, lines } = recordingLog();
  const runner = { runAndRollBack: async () => [] } as unknown as StatementRunner<string>;
  const sql = { trial: "trial" } as HistoryStatements<string>;
  const history = new SqlHistory(runner, sql, (error) => error === LOCKED, clock, log);
  expect(await history.check()).toBe(true);
  return { history, clock, lines };
}

test("while its table is locked, changes are made without it, and tried with it each minute", async () => {
  const { history, clock, lines } = await available();
  const ran: string[] = [];
  const locked = async (statement: string) => {
    ran.push(statement);
    if (statement === "noting") throw LOCKED;
    return "changed";
  };
  // Once may have been another table's lock.
  expect(await history.noting(STATEMENTS, locked)).toBe("changed");
  expect(ran.splice(0)).toEqual(["noting", "plain"]);
  for (let minute = 0; minute < 3; minute += 1) {
    expect(await history.noting(STATEMENTS, locked)).toBe("changed");
    expect(await history.noting(STATEMENTS, locked)).toBe("changed");
    expect(ran.splice(0)).toEqual(["noting", "plain", "plain"]);
    clock.advance(60_000);
  }
  expect(lines.map(({ fields }) => fields.seconds)).toEqual([60, 60, 60]);
  expect(await history.noting(STATEMENTS, async (statement) => statement)).toBe("noting");
});

test("a wait that may have been for a row is the caller's, and does not pause it", async () => {
  const { history, lines } = await available();
  const ran: string[] = [];
  const waits = async (statement: string): Promise<never> => {
    ran.push(statement);
    throw LOCKED;
  };
  await expect(history.noting(STATEMENTS, waits, true)).rejects.toBe(LOCKED);
  expect(ran).toEqual(["noting"]);
  expect(await history.noting(STATEMENTS, async (statement) => statement)).toBe("noting");
  expect(lines).toEqual([]);
});

test("what fails without it too fails, and does not pause it", async () => {
  const { history, lines } = await available();
  const rowIsLocked = async (): Promise<never> => {
    throw LOCKED;
  };
  await expect(history.noting(STATEMENTS, rowIsLocked)).rejects.toBe(LOCKED);
  expect(await history.noting(STATEMENTS, async (statement) => statement)).toBe("noting");
  expect(lines).toEqual([]);
});
