import { CellMap } from "../../../src/core/cells/cellMap.ts";
import { type MovedBucket, Mover } from "../../../src/core/cells/mover.ts";
import { type Cell, keptBy, twinsOf } from "../../../src/core/cells/places.ts";
import { ownersOf, withEpochs } from "../../../src/core/cells/planning.ts";
import { CellReceipts } from "../../../src/core/receipt/cellReceipts.ts";
import type { ClaimToken, NewInboxRow } from "../../../src/model/rows.ts";
import type { Clock } from "../../../src/time/clock.ts";
import { sleep } from "../../../src/time/wait.ts";
import { silentLog } from "../../support/recorders.ts";
import type { Port } from "./calls.ts";

/** A cell as one process reaches it. */
export interface PortCell extends Cell {
  readonly store: { readonly buckets: Port };
}

/** A process that receives messages for all cells. */
export class Receiving {
  readonly map: CellMap;
  readonly #receipts: CellReceipts;

  constructor(cells: readonly PortCell[], clock: Clock) {
    this.map = new CellMap({ cells, log: silentLog });
    const entrances = cells.map(({ name, store: { buckets: port } }) => {
      const insert = (rows: readonly NewInboxRow[]) => port.insert(rows);
      const receipts = {
        add: async (row: NewInboxRow) => (await insert([row]))[0] ?? { kind: "refused" as const, reason: "no answer" },
        addRequest: insert,
      };
      return [name, { receipts, insert }] as const;
    });
    const wait = (ms: number) => sleep(ms);
    this.#receipts = new CellReceipts({ cells: new Map(entrances), buckets: this.map, clock, wait });
  }

  /** One message by itself, or those of a request. What comes of it is seen in the cells. */
  receive(rows: readonly NewInboxRow[]): void {
    const [row] = rows;
    const stored = rows.length === 1 && row !== undefined ? this.#receipts.add(row) : this.#receipts.insert(rows);
    stored.catch(() => {});
  }

  /** A pass of the loop that reads the maps. */
  refresh(): void {
    void this.map.refresh();
  }
}

interface Command {
  readonly cells: readonly PortCell[];
  readonly buckets: readonly number[];
  readonly to: string;
  /** Those that the operator was told to open there, where the cell that was to have them knows nothing of them. */
  readonly told: readonly number[];
  readonly newToken: () => ClaimToken;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/**
 * `svc cells move` in a process of its own.
 *
 * @returns what became of each bucket; none where the command refuses
 */
export async function moveCommand(command: Command): Promise<readonly MovedBucket[]> {
  const { cells, buckets, to, told, newToken, clock, signal } = command;
  const map = new CellMap({ cells, log: silentLog });
  await map.refresh();
  const known = map.cells();
  if (known.some(({ trouble }) => trouble !== undefined) || twinsOf(known) !== undefined) return [];
  const { owners, moving } = ownersOf(known);
  if (buckets.some((bucket) => moving.has(bucket) && keptBy(bucket, known) !== to)) return [];
  const plan = buckets
    .filter((bucket) => owners.get(bucket) !== to)
    .map((bucket) => ({ bucket, from: owners.get(bucket), to }))
    .filter(({ bucket, from }) => from !== undefined || keptBy(bucket, known) === undefined || told.includes(bucket));
  const serverOf = (cell: string) => map.cells().find(({ name }) => name === cell)?.server;
  const mover = new Mover({ cells, serverOf, ownKeySources: [], newToken, clock, log: silentLog });
  return await mover.move(withEpochs(plan, known), signal);
}
