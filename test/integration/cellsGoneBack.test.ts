import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import { CellMap } from "../../src/core/cells/cellMap.ts";
import { Mover } from "../../src/core/cells/mover.ts";
import type { Cell } from "../../src/core/cells/places.ts";
import { CellReceipts } from "../../src/core/receipt/cellReceipts.ts";
import { bucketOf } from "../../src/model/cells.ts";
import type { MessageId } from "../../src/model/rows.ts";
import type { Store } from "../../src/ports/store.ts";
import { systemClock } from "../../src/time/clock.ts";
import { sleep } from "../../src/time/wait.ts";
import { inboxRow } from "../conformance/store/harness.ts";
import { eventually } from "../support/eventually.ts";
import { goBack, type Server } from "../support/goneBack.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { deliver, NEVER, newToken, states } from "../support/movedCells.ts";
import { DEFAULT_NAMES, databaseCopies, postgresStore } from "../support/postgresHarness.ts";
import { ManualClock, recordingLog, silentLog } from "../support/recorders.ts";

failOnLeaks();

/** What becomes of buckets when the database of one of two cells goes back in time, to before a move or into it. */

const openMigrated = databaseCopies();
const KEY = "k";
const BUCKET = bucketOf(KEY);
/** A bucket of another key, which makes its cell known to have some. */
const OTHER = (BUCKET + 1) % 1024;

type StoredCell = Cell & { readonly store: Store };
const cellOn = (name: string, server: Server): StoredCell => ({ name, store: server.store(new ManualClock()) });

/** A cell whose database stays as it is. */
async function openStaying(name: string): Promise<StoredCell & AsyncDisposable> {
  const database = await openMigrated();
  const store = postgresStore(database, DEFAULT_NAMES, new ManualClock(), silentLog);
  return {
    name,
    store,
    async [Symbol.asyncDispose]() {
      await store.close();
      await database.drop();
    },
  };
}

/** A process that receives messages for these cells. */
function processOf(cells: readonly StoredCell[], log = silentLog) {
  const map = new CellMap({ cells, log });
  const ways = cells.map(
    ({ name, store }) =>
      [
        name,
        {
          receipts: undefined as never,
          insert: (rows: Parameters<Store["inbox"]["insert"]>[0]) => store.inbox.insert(rows),
        },
      ] as const,
  );
  const receipts = new CellReceipts({
    cells: new Map(ways),
    buckets: map,
    clock: systemClock,
    wait: (ms) => sleep(ms),
  });
  return {
    map,
    async receive(idempotencyKey: string): Promise<string> {
      const id = randomUUID() as MessageId;
      const [outcome] = await receipts.insert([inboxRow({ id, aggregateId: KEY, idempotencyKey })]);
      return outcome?.kind ?? "nothing";
    },
  };
}

const move = (cells: readonly Cell[], bucket = BUCKET) =>
  new Mover({ cells, ownKeySources: [], newToken, clock: systemClock, log: silentLog, waitMs: 10_000 }).move(
    [{ bucket, from: "a", to: "b" }],
    NEVER,
  );

const isThere = async ({ store }: StoredCell) => await eventually(() => store.buckets.all(), { timeoutMs: 30_000 });

describe("the cell that a bucket has left", () => {
  test("does not take it again, whoever has not heard of the move", async () => {
    await using b = await openStaying("b");
    const { log, lines } = recordingLog();
    let cells: readonly StoredCell[] = [];
    let [knowing, unknowing] = [processOf([]), processOf([])];
    await goBack(
      async (server) => {
        cells = [cellOn("a", server), b];
        knowing = processOf(cells);
        unknowing = processOf([cellOn("a", server), b], log);
        await knowing.map.refresh();
        await unknowing.map.refresh();
        expect(await knowing.receive("first")).toBe("stored");
        await deliver(cells[0] as StoredCell);
      },
      async () => {
        // What was open before the copy is broken by now.
        await isThere(cells[0] as StoredCell);
        expect(await move(cells)).toMatchObject([{ outcome: "moved" }]);
        expect(await knowing.receive("second")).toBe("stored");
      },
      async () => {
        const a = cells[0] as StoredCell;
        await isThere(a);
        expect(await states(a, BUCKET)).toBe("open 1");
        expect(await eventually(() => unknowing.receive("third"))).toBe("stored");
        expect(await Promise.all(["first", "second", "third"].map((key) => knowing.receive(key)))).toEqual([
          "duplicate",
          "duplicate",
          "duplicate",
        ]);
        expect([await states(a, BUCKET), await states(b, BUCKET)]).toEqual(["left 2", "open 2"]);
        expect(lines).toContainEqual(
          expect.objectContaining({
            message: "the cell has gone back to before buckets left it: they stay where they went",
            fields: expect.objectContaining({ cell: "a", buckets: 1, cells: ["b"] }),
          }),
        );
      },
    );
  }, 120_000);
});

describe("the cell to which a bucket moves", () => {
  test("does not get it when it goes back while the bucket drains: its copies are gone", async () => {
    await using a = await openStaying("a");
    let cells: readonly StoredCell[] = [];
    let moving: ReturnType<typeof move> | undefined;
    const process = () => processOf(cells);
    await goBack(
      async (server) => {
        cells = [a, cellOn("b", server)];
        await process().map.refresh();
      },
      async () => {
        const b = cells[1] as StoredCell;
        await isThere(b);
        const { receive, map } = process();
        await map.refresh();
        await receive("first");
        await deliver(a);
        // It waits for its delivery.
        await receive("second");
        moving = move(cells);
        await eventually(async () => {
          expect(await states(a, BUCKET)).toBe("moving 1");
          expect((await b.store.buckets.finished(undefined, 10)).rows).not.toEqual([]);
        });
      },
      async () => {
        await isThere(cells[1] as StoredCell);
        await deliver(a);
        expect(await moving).toMatchObject([{ outcome: "failed" }]);
        const { map, receive } = process();
        await map.refresh();
        expect([await states(a, BUCKET), map.cellOf(BUCKET)]).toMatchObject(["open 1", { cell: "a" }]);
        expect([await receive("first"), await receive("second")]).toEqual(["duplicate", "duplicate"]);
        expect(await move(cells)).toMatchObject([{ outcome: "moved" }]);
        expect([await receive("first"), await receive("second")]).toEqual(["duplicate", "duplicate"]);
      },
    );
  }, 120_000);

  test.each([
    ["gives it back when it has gone back to before the move", true],
    ["is asked about by an operator where it knows of no bucket at all: it may be a wrong database", false],
  ])(
    "%s",
    async (_, hasOther) => {
      await using a = await openStaying("a");
      let cells: readonly StoredCell[] = [];
      const { log, lines } = recordingLog();
      const process = () => processOf(cells, log);
      await goBack(
        async (server) => {
          cells = [a, cellOn("b", server)];
          await process().map.refresh();
          if (hasOther) expect(await move(cells, OTHER)).toMatchObject([{ outcome: "moved" }]);
        },
        async () => {
          await isThere(cells[1] as StoredCell);
          const { map, receive } = process();
          await map.refresh();
          await receive("first");
          await deliver(a);
          expect(await move(cells)).toMatchObject([{ outcome: "moved" }]);
          expect(await receive("lost")).toBe("stored");
          expect([await states(a, BUCKET), await states(cells[1] as StoredCell, BUCKET)]).toEqual(["left 2", "open 2"]);
        },
        async () => {
          await isThere(cells[1] as StoredCell);
          const { map, receive } = process();
          await map.refresh();
          const found = [await states(a, BUCKET, OTHER), await states(cells[1] as StoredCell, BUCKET, OTHER)];
          if (hasOther) {
            expect(found).toEqual(["open 3,left 2", "open 2"]);
            expect([await receive("first"), await receive("lost")]).toEqual(["duplicate", "stored"]);
            expect(lines).toContainEqual(
              expect.objectContaining({ fields: expect.objectContaining({ cell: "a", buckets: 1, lostBy: "b" }) }),
            );
          } else {
            expect(found).toEqual(["left 2,open 1", ""]);
            expect(map.cellOf(BUCKET)).toEqual({
              reason: `the bucket ${BUCKET} has left the cell a for b, which knows nothing of it: if that is the right database, run svc cells move --bucket ${BUCKET} --to a`,
            });
          }
        },
      );
    },
    120_000,
  );
});
