import { type ClaimScan, OutboxClaims } from "../../../../src/adapters/stores/sql/claims.ts";
import { SqlHistory } from "../../../../src/adapters/stores/sql/history.ts";
import { noLowWater } from "../../../../src/adapters/stores/sql/lowWaterMarks.ts";
import type { Row, StatementRunner, Values } from "../../../../src/adapters/stores/sql/rows.ts";
import type { ClaimScope } from "../../../../src/ports/store.ts";
import { claimRequest } from "../../../conformance/store/harness.ts";
import { ManualClock, silentLog } from "../../../support/recorders.ts";

export const except = (destinations: readonly string[]): ClaimScope => ({
  name: "others",
  which: "except",
  destinations,
  exceptKeys: [],
});
export const only = (name: string): ClaimScope => ({ name, which: "only", destinations: ["ill"], exceptKeys: [] });

export const SCOPE = except(["stuck"]);

const HISTORY_STATEMENTS = { trial: "", of: "", newest: "", since: "", deleteOrphans: "" };

/** A table that tells where it was looked at; a look costs `sweepMs` where it does not begin at the cursor. */
export function table({ sweepMs = 0, retriesMs = 0, changedMs = 0, pending = 0 } = {}) {
  const clock = new ManualClock();
  const state = {
    /** The position behind the last row. */
    end: 1000,
    /** Of free rows, in ascending order. */
    free: [] as number[],
    /** Of the last row that is due, whoever may have it. */
    lastDue: Number.POSITIVE_INFINITY,
    /** How many times something has changed; undefined where nobody can tell. */
    changes: undefined as number | undefined,
    /** Rows of which one has the position of its number. */
    pending,
    /** Most rows of a claim, which takes those that are free. */
    limit: Number.POSITIVE_INFINITY,
    /** Free rows that are too large for a claim. */
    tooLarge: 0,
    /** What claims of due retries find, one after another. */
    retries: [] as Pick<ClaimScan, "rows" | "more">[],
    /** As the last claim told. */
    goesOnInMs: undefined as number | undefined,
    more: false,
  };
  const looks: string[] = [];
  let scan: ClaimScan = { rows: [], more: false, heldBack: 0, rowsRead: 0, first: undefined };
  const look = (what: string, from: unknown, tookMs: number, to = Number.POSITIVE_INFINITY): void => {
    looks.push(to > state.end ? `${what} ${from}` : `${what} ${from} to ${to}`);
    const found = state.free.filter((position) => position >= Number(from) && position < to);
    clock.advance(tookMs);
    scan = {
      rows: [],
      more: found.length > state.limit,
      heldBack: 0,
      rowsRead: state.tooLarge,
      first: found[0] === undefined ? undefined : String(found[0]),
      seen: state.changes === undefined ? undefined : String(state.changes),
    };
  };
  /** Each statement by its name, with the rows that it answers. */
  const statements: Readonly<Record<string, (values: Values) => readonly Row[]>> = {
    "in order": ({ from }) => answerOf(() => look("in order", from, 0)),
    "past blocked keys": ({ from }) => answerOf(() => look("past blocked keys", from, 0)),
    claim: ({ from }) => answerOf(() => look("claim", from, 0)),
    sweep: ({ from, to }) => answerOf(() => look("sweep", from, sweepMs, Number(to))),
    retries({ from, to, withinMs }) {
      looks.push(`retries ${from} to ${to} within ${withinMs}`);
      clock.advance(retriesMs);
      const { rows, more } = state.retries.shift() ?? { rows: [], more: false };
      scan = { rows, more, heldBack: 0, rowsRead: rows.length, first: undefined, seen: String(state.changes) };
      return [];
    },
    "pending behind"({ from, rows }) {
      const position = Number(from) + Number(rows);
      return position < state.pending ? [{ sequence: String(position) }] : [];
    },
    end: () => {
      looks.push("end");
      return [{ end: String(state.end) }];
    },
    due: ({ from }) => [{ answer: state.lastDue >= Number(from) }],
    changed({ seen }) {
      looks.push("changed?");
      clock.advance(changedMs);
      return [{ answer: seen !== String(state.changes) }];
    },
  };
  const answerOf = (work: () => void): readonly Row[] => {
    work();
    return [];
  };
  const run = async (name: string, values: Values = {}) => statements[name]?.(values) ?? [];
  const runner: StatementRunner<string> = {
    run,
    runAll: async (name, values) => [await run(name, values)],
    runAndRollBack: (work) => work(run),
  };
  const unscoped = {
    claimInOrder: () => "in order",
    claimPastBlockedKeys: () => "past blocked keys",
    sweepPastBlockedKeys: "past blocked keys",
  };
  const scoped = {
    claim: () => "claim",
    sweep: "sweep",
    sweepOn: "sweep",
    claimRetries: "retries",
    dueBehind: "due behind",
  };
  const lowWater = noLowWater(clock, { lostConnections: 0 });
  const claims = new OutboxClaims<string>(
    runner,
    {
      ...unscoped,
      withoutSome: unscoped,
      only: scoped,
      except: scoped,
      dueBehind: "due behind",
      trial: "trial",
      setBack: "set back",
      due: "due",
      glance: "glance",
      dueFrom: "due",
      mayHaveChanged: "changed",
      mayLackTimes: undefined,
      pendingBehind: "pending behind",
      end: "end",
      behindUnfinished: "behind unfinished",
      settle: { plain: "settle", noting: "settle" },
      dialect: { scanOf: () => scan, settleValues: () => ({}), entryValues: () => ({}), closedOf: () => [] },
    },
    lowWater,
    new SqlHistory<string>(runner, HISTORY_STATEMENTS, () => false, clock, silentLog),
    clock,
  );
  const { hints } = claims;
  return {
    clock,
    hints,
    marks: lowWater.marks,
    state,
    /** Claims. @returns what was asked of the table for it */
    async claim(scope?: ClaimScope): Promise<readonly string[]> {
      const { goesOnInMs, more } = await claims.claim(claimRequest({ scope }));
      Object.assign(state, { goesOnInMs, more });
      return looks.splice(0);
    },
  };
}

/** A table whose rows are all passed: a claim begins behind them. */
export async function passed(scope: ClaimScope, options = {}) {
  const it = table(options);
  await it.claim(scope);
  it.clock.advance(1000);
  await it.claim(scope);
  return it;
}

/** Appends rows until the front of a passed table takes several sweeps, and passes them. */
export async function makeFrontLong({ claim, clock, state }: ReturnType<typeof table>): Promise<void> {
  Object.assign(state, { end: 12_000, pending: 12_000 });
  await claim(SCOPE);
  for (let n = 0; n < 30; n += 1) {
    clock.advance(100);
    await claim(SCOPE);
  }
}
