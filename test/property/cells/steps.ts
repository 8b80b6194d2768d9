import fc from "fast-check";
import type { Method } from "./calls.ts";

/** What happens to an installation of cells, one thing after another. What makes no sense when its turn comes is left out. */

export const PROCESSES = 2;
export const MOVERS = 2;
export const KEYS = 2;
const MOST_CELLS = 3;

const process = fc.nat(PROCESSES - 1);
const mover = fc.nat(MOVERS - 1);
const cell = fc.nat(MOST_CELLS - 1);
const key = fc.nat(KEYS - 1);

/** What becomes of a call: it waits, is done and its answer waits, or its connection breaks before or after that. */
const callFate = fc.oneof(
  { weight: 2, arbitrary: fc.constantFrom("waits" as const, "is done" as const) },
  { weight: 1, arbitrary: fc.constantFrom("breaks" as const, "breaks done" as const) },
);
export type CallFate = typeof callFate extends fc.Arbitrary<infer T> ? T : never;

/** How far a process gets with its calls; usually until it has none. */
const answers = fc.record({
  calls: fc.oneof(
    { weight: 2, arbitrary: fc.constant(Number.POSITIVE_INFINITY) },
    { weight: 1, arbitrary: fc.integer({ min: 0, max: 6 }) },
  ),
  /** Which of several calls is next. */
  pick: fc.nat(2),
  fate: callFate,
});
export type Answers = typeof answers extends fc.Arbitrary<infer T> ? T : never;

const METHODS: readonly Method[] = ["all", "copy", "close", "expect", "leave", "arrive", "open", "reopen"];

/** How far a mover gets: to a call, of which something becomes, or to where it ends or waits for time. */
const progress = fc.oneof(
  { weight: 2, arbitrary: fc.constant(undefined) },
  {
    weight: 3,
    arbitrary: fc.record({
      method: fc.constantFrom(...METHODS),
      /** How many calls of that method are answered before. */
      after: fc.oneof({ weight: 2, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: fc.nat(5) }),
      fate: fc.oneof(
        { weight: 2, arbitrary: callFate },
        {
          weight: 1,
          arbitrary: fc.constantFrom("is killed" as const, "is killed done" as const, "is aborted" as const),
        },
      ),
    }),
  },
);
export type Progress = typeof progress extends fc.Arbitrary<infer T> ? T : never;

const does = <Name extends string>(name: Name) => ({ does: fc.constant(name) });
const weighted = <T>(weight: number, arbitrary: fc.Arbitrary<T>) => ({ weight, arbitrary });

const usual = [
  // New messages, of one request; delivered at once where their receiver answers.
  weighted(
    5,
    fc.record({
      ...does("receive"),
      process,
      keys: fc.array(key, { minLength: 1, maxLength: 2 }),
      answers,
      isDelivered: fc.boolean(),
    }),
  ),
  // An earlier message comes again, or all of them do.
  weighted(3, fc.record({ ...does("repeat"), process, which: fc.option(fc.nat(20)), answers })),
  weighted(2, fc.record({ ...does("refresh"), process, answers })),
  weighted(3, fc.record({ ...does("answer"), process, answers })),
  weighted(7, fc.record({ ...does("move"), mover, keys: fc.uniqueArray(key, { minLength: 1 }), to: cell, progress })),
  weighted(4, fc.record({ ...does("advance"), mover, progress })),
  weighted(1, fc.record({ ...does("kill"), mover })),
  weighted(3, fc.record({ ...does("deliver"), cell, isRelayedOnly: fc.boolean() })),
  weighted(3, fc.record({ ...does("elapse"), ms: fc.constantFrom(100, 1000, 4000, 11_000) })),
  weighted(1, fc.record({ ...does("goAway"), cell, away: fc.constantFrom("fails" as const, "hangs" as const) })),
  weighted(1, fc.record({ ...does("comeBack"), cell })),
  weighted(1, fc.record({ ...does("restart"), cell, areBroken: fc.boolean() })),
  weighted(1, fc.record({ ...does("start"), process, isDone: fc.boolean(), answers })),
  weighted(1, fc.record(does("settle"))),
] as const;

const restore = fc.record({
  ...does("restore"),
  cell,
  /** To before so many of its last changes of buckets, and some more writes. */
  changes: fc.nat(3),
  writes: fc.nat(2),
  areBroken: fc.boolean(),
});

const step = fc.oneof(...usual);
const stepOrRestore = fc.oneof(...usual, weighted(3, restore));
export type Step = typeof stepOrRestore extends fc.Arbitrary<infer T> ? T : never;
export type StepOf<Name extends Step["does"]> = Extract<Step, { does: Name }>;

export interface Plan {
  readonly cells: number;
  readonly steps: readonly Step[];
}

/** @param areRestored whether cells go back in time */
export const plans = (areRestored: boolean): fc.Arbitrary<Plan> =>
  fc.record({
    cells: fc.integer({ min: 2, max: MOST_CELLS }),
    steps: fc.array<Step>(areRestored ? stepOrRestore : step, { maxLength: 40, size: "max" }),
  });
