import { describe, expect, test } from "@jest/globals";
import type { Row } from "../../../../src/adapters/stores/sql/rows.ts";
import { outboxStatements } from "../../../../src/adapters/stores/sqlserver/outboxSql.ts";
import { deliveryId } from "../../../../src/model/deliveries.ts";
import type { MessageId } from "../../../../src/model/rows.ts";
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

describe("a table without the columns for lists", () => {
  const without = outboxStatements({
    ...DEFAULT_NAMES,
    outbox: { ...outbox, messageSequence: null, expandedTo: null },
  });

  test("has no statement that names them, or a row of a message", () => {
    expect(without.lists).toBeUndefined();
    const { inOrder, pastBlocked, oneQueue } = without;
    for (const statement of [inOrder, pastBlocked, oneQueue.inOrder, oneQueue.pastBlocked]) {
      for (const { text } of Object.values(statement)) expect(text).not.toMatch(/message|expanded|\bnull\b|\bm\./);
    }
  });
});

describe("deliveries", () => {
  const claims = [statements.inOrder, statements.pastBlocked, ...Object.values(statements.oneQueue)];

  test("are read behind the other rows of their keys, each kind by its index", () => {
    for (const { claim } of claims) {
      const stops = claim.text.split(";").filter((part) => part.includes("INSERT INTO @stops"));
      const [ofOthers = "", ofDeliveries = "", ...more] = stops;
      expect(more).toEqual([]);
      expect(ofOthers).toMatch(/AND o\.message_sequence IS NULL AND .*\n {4}AND o\.sequence < k\.last\n/);
      expect(ofDeliveries).toMatch(
        /AND o\.message_sequence IS NOT NULL AND .*\n {4}AND o\.message_sequence < k\.last\n/,
      );
    }
  });

  test("stop rows of their destination, and with these what is behind them in their lanes", () => {
    for (const { claim, chosen } of claims) {
      for (const { text } of [claim, chosen]) {
        const free = text.split(";").find((part) => part.includes("INSERT INTO @free")) ?? "";
        expect(free).toMatch(
          /@stops s JOIN @candidates b ON b\.run = s\.run AND CONCAT\(b\.destination, N'\.'\) = CONCAT\(s\.destination, N'\.'\)\n {2}WHERE b\.place >= s\.place GROUP BY b\.run\n\) w ON w\.run = n\.run\nWHERE w\.place IS NULL OR n\.place < w\.place/,
        );
      }
    }
  });

  test("are claimed with payload and headers of their messages, in the order of their places", () => {
    for (const { claim } of claims) {
      const answer = claim.text.slice(claim.text.indexOf("COMMIT TRANSACTION"));
      expect(answer).toMatch(
        /\) m\nWHERE o\.claim_token = @token\nORDER BY COALESCE\(o\.message_sequence, o\.sequence\), o\.sequence\n/,
      );
      // The claim is committed: it neither waits for a message that is locked, nor passes it.
      expect(answer).toMatch(
        /FROM outbox m WITH \(READUNCOMMITTED\)\n {2}WHERE m\.sequence = o\.message_sequence AND m\.state IN \(N'sent', N'dead'\)\) m/,
      );
      for (const column of ["payload", "headers", "aggregate_type"]) {
        expect(answer).toContain(
          `CASE WHEN o.message_sequence IS NOT NULL THEN m.${column} ELSE o.${column} END AS ${column}`,
        );
      }
    }
  });

  test("are made in the transaction that expands their messages, without the identity of another row", () => {
    for (const { text } of Object.values(statements.lists?.expand ?? {})) {
      const [, changes = ""] = text.split("BEGIN TRANSACTION;");
      const [made = ""] = /INSERT INTO outbox \(([^)]*)\)/.exec(changes)?.slice(1) ?? [];
      expect(made.split(", ")).toEqual(expect.arrayContaining(["id", "message_sequence", "destination", "state"]));
      expect(made.split(", ")).not.toContain("sequence");
      expect(changes.indexOf("COMMIT TRANSACTION;")).toBeGreaterThan(changes.indexOf(made));
      expect(changes).toMatch(/READPAST/);
    }
  });

  test("have ids, states and reasons, a JSON object each", () => {
    const id = "01932c5e-8f3a-7c31-b0d5-1f6a3f6f8a11" as MessageId;
    const deliveries = [
      { destination: "billing", isDead: false, reason: null },
      { destination: "audit", isDead: true, reason: "no" },
    ];
    const values = statements.lists?.valuesOf([{ id, deliveries, skipped: [] }]);
    expect(JSON.parse(String(values?.messages))).toEqual([{ id, expandedTo: '["billing","audit"]' }]);
    expect(JSON.parse(String(values?.deliveries))).toEqual([
      { message: id, id: deliveryId(id, "billing"), destination: "billing", state: "pending", reason: null },
      { message: id, id: deliveryId(id, "audit"), destination: "audit", state: "dead", reason: "no" },
    ]);
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
