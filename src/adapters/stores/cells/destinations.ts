import { cellNames } from "../../../model/errors.ts";
import type { BreakerState, SharedDestination } from "../../../ports/destinationStore.ts";
import type { OperatorStore } from "../../../ports/operatorStore.ts";
import { type Answers, askEach, failed, readAll } from "./asking.ts";
import type { CellLink } from "./link.ts";

/** Destinations: each cell has its own state of them, and a pause is in force in every cell. */
export function cellDestinations(cells: readonly CellLink[]): OperatorStore["destinations"] {
  return {
    get isAvailable() {
      // What a cell has that is away since the start is not known: a pause then says that it failed there.
      const known = cells.filter(({ isReady, isChecked }) => isReady && isChecked);
      return known.length > 0 && known.every(({ store }) => store.destinations.isAvailable);
    },

    async states() {
      const { answers } = await readAll(cells, async ({ destinations }) =>
        destinations.isAvailable ? await destinations.states() : [],
      );
      const byName = new Map<string, SharedDestination>();
      for (const each of answers.flatMap(({ value }) => value)) {
        const known = byName.get(each.name);
        byName.set(each.name, known === undefined ? each : combined(known, each));
      }
      return [...byName.values()];
    },

    async pause(name, pause) {
      inEvery(
        await askEach(cells, ({ destinations }) => destinations.pause(name, pause), { insists: true }),
        `${name} is paused`,
      );
    },

    async resume(name) {
      const answers = inEvery(
        await askEach(cells, ({ destinations }) => destinations.resume(name), { insists: true }),
        `${name} is not paused`,
      );
      return answers.some(({ value }) => value);
    },
  };
}

/** @throws CellError that says in which cells it is in force */
function inEvery<T>({ answers, failures }: Answers<T>, inForce: string): Answers<T>["answers"] {
  if (failures.length === 0) return answers;
  const names = answers.map(({ cell }) => cell.name);
  throw failed(failures, names.length === 0 ? "" : `${inForce} in ${cellNames(names)} alone: repeat it`);
}

const SEVERITY: readonly BreakerState[] = ["closed", "half-open", "open"];

function combined(a: SharedDestination, b: SharedDestination): SharedDestination {
  const isWorse = SEVERITY.indexOf(b.breaker.state) - SEVERITY.indexOf(a.breaker.state);
  const lastFailed = isLater(b.lastFailureAt, a.lastFailureAt) ? b : a;
  return {
    name: a.name,
    pause: b.pause !== null && (a.pause === null || b.pause.at < a.pause.at) ? b.pause : a.pause,
    breaker: isWorse > 0 || (isWorse === 0 && b.breaker.openings > a.breaker.openings) ? b.breaker : a.breaker,
    lastSuccessAt: isLater(b.lastSuccessAt, a.lastSuccessAt) ? b.lastSuccessAt : a.lastSuccessAt,
    lastFailureAt: lastFailed.lastFailureAt,
    lastError: lastFailed.lastError,
    slowAt: isLater(b.slowAt, a.slowAt) ? b.slowAt : a.slowAt,
    isSlow: a.isSlow || b.isSlow,
    takenPerSecond: a.takenPerSecond + b.takenPerSecond,
  };
}

function isLater(a: Date | null, b: Date | null): boolean {
  return a !== null && (b === null || a > b);
}
