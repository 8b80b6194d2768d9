import { expect, test } from "@jest/globals";
import fc from "fast-check";
import { StoreError } from "../../src/model/errors.ts";
import type { ClaimToken, NewInboxRow } from "../../src/model/rows.ts";
import type { StoredRow } from "../../src/ports/bucketStore.ts";
import type { Store } from "../../src/ports/store.ts";
import { inboxRow } from "../conformance/store/harness.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { deliver, TOPICS } from "../support/movedCells.ts";
import { migratedDatabase, postgresStore } from "../support/postgresHarness.ts";
import { MemoryCell } from "./cells/memoryCell.ts";
import { settings } from "./settings.ts";

failOnLeaks();

const TOKENS = [1, 2].map((n) => `00000000-0000-4000-8000-00000000000${n}` as ClaimToken);
const [LASTING_MS, ENDED_MS] = [600_000, -1];

const bucket = fc.integer({ min: 0, max: 3 });
const buckets = fc.uniqueArray(bucket, { minLength: 1 });
const token = fc.constantFrom(...TOKENS);
const leaseMs = fc.constantFrom(LASTING_MS, ENDED_MS);
const step = fc.oneof(
  fc.record({ does: fc.constant("open" as const), buckets, epoch: fc.integer({ min: 1, max: 4 }) }),
  fc.record({ does: fc.constant("close" as const), buckets, token, leaseMs }),
  fc.record({ does: fc.constant("renew" as const), token, leaseMs }),
  fc.record({ does: fc.constant("reopen" as const), buckets, token: fc.option(token) }),
  fc.record({ does: fc.constant("leave" as const), buckets, token }),
  fc.record({
    does: fc.constant("expect" as const),
    buckets,
    epoch: fc.integer({ min: 1, max: 6 }),
    token,
    isServer: fc.boolean(),
  }),
  fc.record({ does: fc.constant("arrive" as const), buckets, epoch: fc.integer({ min: 1, max: 6 }), token }),
  fc.record({ does: fc.constant("takeBack" as const), buckets, epoch: fc.integer({ min: 1, max: 6 }) }),
  fc.record({ does: fc.constant("supersede" as const), buckets, epoch: fc.integer({ min: 1, max: 6 }) }),
  fc.record({
    does: fc.constant("receive" as const),
    buckets,
    key: fc.nat(3),
    bucketsOn: fc.constantFrom("this" as const, "another" as const, undefined),
  }),
  fc.record({ does: fc.constantFrom("relay" as const, "deliver" as const) }),
  // Another cell takes the finished rows; this one loses its rows; it gets those of the other cell.
  fc.record({ does: fc.constantFrom("keep" as const, "lose" as const, "copy" as const) }),
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

type StepOf<Does extends Step["does"]> = Extract<Step, { does: Does }>;

/** Does steps in a cell. @returns what its caller learns, comparable with that of another cell */
interface Cell {
  readonly take: (step: Step, rows: readonly NewInboxRow[]) => Promise<unknown>;
  readonly look: () => Promise<unknown>;
}

const at = ({ buckets: of, epoch }: { readonly buckets: readonly number[]; readonly epoch: number }) =>
  of.map((each) => ({ bucket: each, epoch }));

/** The port of its buckets, at once or not. */
type Port = MemoryCell | Store["buckets"];

const changeOf = async (port: Port, step: Step, server: string | undefined): Promise<unknown> => {
  switch (step.does) {
    case "open":
      return await port.open(at(step));
    case "close":
      return await port.close(step.buckets, "b", step);
    case "renew":
      return await port.renew(step);
    case "reopen":
      return await port.reopen(step.buckets, step.token);
    case "leave":
      return await port.leave(step.buckets, step.token);
    case "expect":
      return await port.expect(at(step), { from: "b", token: step.token, server: step.isServer ? server : "another" });
    case "arrive":
      return await port.arrive(at(step), step.token);
    case "takeBack":
      return await port.takeBack(at(step).map((each) => ({ ...each, nextEpoch: step.epoch + 2 })));
    case "supersede":
      return await port.supersede(at(step).map((each) => ({ ...each, cell: "b" })));
    default:
      throw new Error(`${step.does} is no change of buckets`);
  }
};

/** Whatever the order. */
const sorted = (values: unknown): unknown =>
  Array.isArray(values) ? values.map((each) => JSON.stringify(each, Object.keys(each).sort())).sort() : values;

/** What of its tables a mover sees. */
async function lookAt(port: Port): Promise<unknown> {
  const { rows } = await port.all();
  const first = await port.unfinished(undefined, 100);
  const waiting = [...first.rows];
  for (let { next } = first; next !== undefined; ) {
    const page = await port.unfinished(next, 100);
    waiting.push(...page.rows);
    next = page.next;
  }
  return {
    rows: sorted(rows),
    waiting: sorted(waiting.map(({ id, key, waitsFor }) => ({ id, key, waitsFor }))),
    finished: sorted((await finishedOf(port)).map(({ id }) => ({ id }))),
  };
}

const finishedOf = async (port: Port) => (await port.finished(undefined, 100)).rows;

/** @param cell takes rows in, relays and delivers them, and loses all of them */
function cellOf(
  port: Port,
  server: string | undefined,
  cell: {
    readonly insert: (rows: readonly NewInboxRow[]) => unknown;
    readonly relay: () => unknown;
    readonly deliver: () => unknown;
    readonly lose: () => unknown;
  },
): Cell {
  let kept: readonly StoredRow[] = [];
  const take = async (step: Step, rows: readonly NewInboxRow[]): Promise<unknown> => {
    switch (step.does) {
      case "receive":
        try {
          return await cell.insert(rows);
        } catch (error) {
          if (error instanceof StoreError && error.code === "elsewhere") return error.code;
          throw error;
        }
      case "relay":
      case "deliver":
      case "lose":
        await cell[step.does]();
        return undefined;
      case "keep":
        kept = await port.read((await finishedOf(port)).map(({ id }) => id));
        return kept.length;
      case "copy":
        return await port.copy(kept);
      default:
        return sorted(await changeOf(port, step, server));
    }
  };
  return { take, look: () => lookAt(port) };
}

const received = ({ buckets: of, key, bucketsOn }: StepOf<"receive">, server: string | undefined) =>
  of.map((each) =>
    inboxRow({
      bucket: each,
      bucketsOn: bucketsOn === "this" ? server : bucketsOn,
      idempotencyKey: `${each}-${key}`,
      aggregateId: `aggregate-${each}`,
    }),
  );

test("a cell does what its model in memory does, whatever movers do to it in whatever order", async () => {
  const database = await migratedDatabase();
  const store = postgresStore(database);
  // One that relays would do so with the receipt.
  const receiving = postgresStore(database);
  const { server } = await store.buckets.all();
  const relay = async () => {
    while ((await store.inbox.relay(TOPICS)).relayed > 0);
  };
  const lose = () => database.query("TRUNCATE inbox, outbox");
  const inStore = {
    relay,
    lose,
    insert: receiving.inbox.insert.bind(receiving.inbox),
    deliver: () => deliver({ store }),
  };
  try {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
        await database.query("TRUNCATE outbox_bucket, inbox, outbox");
        const memory = new MemoryCell(server ?? "", () => 0);
        const model = cellOf(memory, server, {
          insert: (rows) => memory.insert(rows),
          relay: () => memory.relay(),
          deliver: () => [memory.relay(), memory.deliver()],
          lose: () => {
            memory.tables = { ...memory.tables, inbox: new Map(), outbox: [] };
          },
        });
        const real = cellOf(store.buckets, server, inStore);
        for (const each of steps) {
          const rows = each.does === "receive" ? received(each, server) : [];
          expect(await real.take(each, rows)).toEqual(await model.take(each, rows));
        }
        expect(await real.look()).toEqual(await model.look());
      }),
      settings(200),
    );
  } finally {
    await store.close();
    await receiving.close();
    await database.drop();
  }
}, 120_000);
