import { describe, expect, test } from "@jest/globals";
import type { Row } from "../../../../src/adapters/stores/sql/rows.ts";
import { outboxStatements } from "../../../../src/adapters/stores/sqlserver/outboxSql.ts";
import { DEFAULT_NAMES } from "../../../support/postgresHarness.ts";

const { outbox } = DEFAULT_NAMES;
const statements = outboxStatements(DEFAULT_NAMES);
const ofOneQueue = outboxStatements({ ...DEFAULT_NAMES, outbox: { ...outbox, destination: null, routes: null } });

describe("the answer of a claim", () => {
  const { scanOf } = statements.dialect;
  /** As the driver gives it: `bigint` as text, `bit` as a boolean. */
  const scanned = (answer: Row, queues: readonly Row[] = [], rows: readonly Row[] = []) =>
    scanOf([queues, [{ has_unlabelled: 0, lost: false, ...answer }], rows]);

  test("has the counts of each queue, and the rows", () => {
    const queues = [
      { queue: "a", candidates: 3, held_back: 1, gap: "7" },
      { queue: "", candidates: 1, held_back: 0, gap: null },
    ];
    expect(scanned({ has_unlabelled: 1 }, queues, [{ id: "1" }])).toEqual({
      rows: [{ id: "1" }],
      queues: [
        { queue: "a", candidates: 3, heldBack: 1, gap: 7 },
        { queue: "", candidates: 1, heldBack: 0, gap: null },
      ],
      labelled: 0,
      hasUnlabelled: true,
      first: undefined,
      end: undefined,
      isRead: false,
    });
  });

  test("has the stretch that was read", () => {
    const stretch = { first_position: null, end_position: "9007199254740993", is_read: true };
    expect(scanned(stretch)).toMatchObject({ first: undefined, end: "9007199254740993", isRead: true });
    expect(scanned({ ...stretch, first_position: "12" })).toMatchObject({ first: "12", hasUnlabelled: false });
  });

  test("leaves more to claim if another claim took the same rows", () => {
    expect(scanned({ lost: true, is_read: true })).toMatchObject({ hasUnlabelled: true, isRead: false });
  });
});

describe("a table without the columns for destinations", () => {
  test("is claimed from as one queue, and nothing is labelled", () => {
    expect(ofOneQueue.inOrder).toBe(ofOneQueue.oneQueue.inOrder);
    expect(ofOneQueue.pastBlocked).toBe(ofOneQueue.oneQueue.pastBlocked);
    expect(ofOneQueue.unlabelled).toBeUndefined();
    const { inOrder, pastBlocked, trial } = ofOneQueue;
    for (const { text } of [inOrder.claim, inOrder.chosen, pastBlocked.claim, trial])
      expect(text).not.toMatch(/\bnull\b/);
  });
});

describe("a claim", () => {
  /** The statements of a batch that change the outbox. */
  const updatesOf = (text: string) => text.split(";").filter((part) => /^\s*UPDATE o\b/m.test(part));

  test("labels a row in the change that claims it, and a row that is left behind in another", () => {
    const [taken = "", leftBehind = "", ...others] = updatesOf(statements.inOrder.claim.text);
    expect(others).toEqual([]);
    for (const column of ["state", "claim_token", "destination", "routes"]) expect(taken).toMatch(`${column} = `);
    for (const column of ["destination", "routes"]) expect(leftBehind).toMatch(`${column} = `);
    expect(leftBehind).not.toMatch(/claim_token|state/);
  });

  test("past a blocked front, or of one queue, labels nothing", () => {
    for (const { claim } of [statements.pastBlocked, ...Object.values(statements.oneQueue)]) {
      const { text } = claim;
      expect(updatesOf(text)).toHaveLength(1);
      expect(text).not.toMatch(/(destination|routes) = CASE/);
    }
  });
});
