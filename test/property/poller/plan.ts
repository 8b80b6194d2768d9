import fc from "fast-check";
import type { DestinationLimits } from "../../../src/core/destinations/gates.ts";

/** What a run is made of. Times are ms. */
export interface Plan {
  /** Of the latencies, failures and faults. */
  readonly seed: number;
  readonly replicas: number;
  readonly rows: number;
  /** How many destinations the rows go to. */
  readonly destinations: number;
  /** How many keys the rows have; one in eight has none. */
  readonly keys: number;
  readonly batchSize: number;
  readonly concurrency: number;
  /** Longest way to the database, and back. */
  readonly databaseMs: number;
  /** Longest way to the receiver, and back. */
  readonly deliveryMs: number;
  /** The rows come within this time. */
  readonly arrivingMs: number;
  /** Share of the deliveries that the receiver refuses. */
  readonly refused: number;
  /** Until a refused row is due again. */
  readonly retryMs: number;
  /** The receiver refuses everything from when, and for how long. */
  readonly outage: { readonly fromMs: number; readonly lengthMs: number };
  /** What becomes of one of the destinations, when and for how long; undefined where all are well. */
  readonly illness: Illness | undefined;
  /** Of the destination that may be ill. */
  readonly limits: DestinationLimits;
  /** When an operator pauses it, and for how long. */
  readonly pause: { readonly fromMs: number; readonly lengthMs: number };
  readonly faults: readonly Fault[];
}

export interface Illness {
  /** `hangs`: no answer in ten seconds; `crawls`: an answer after five; `refuses`: a refusal at once. */
  readonly kind: "hangs" | "crawls" | "refuses";
  readonly fromMs: number;
  readonly lengthMs: number;
}

export type FaultKind =
  /** It ends at once, and after `lengthMs` another one comes in its place. */
  | "kill"
  /** The same, but it stops in order, as by SIGTERM. */
  | "terminate"
  /** Nothing of it runs, as by SIGSTOP. */
  | "pause"
  /** Its statements fail, whether the database has executed them or not. */
  | "cut"
  /** Its statements get no answer, and fail in the end. */
  | "held";

/** Something that happens to one replica. */
export interface Fault {
  readonly atMs: number;
  readonly replica: number;
  readonly kind: FaultKind;
  readonly lengthMs: number;
}

const times = (max: number) => fc.integer({ min: 1, max });

const fault = (kinds: readonly FaultKind[]): fc.Arbitrary<Fault> =>
  fc.record({
    atMs: fc.nat({ max: 4000 }),
    replica: fc.nat({ max: 2 }),
    kind: fc.constantFrom(...kinds),
    lengthMs: fc.oneof(times(5000), times(70_000)),
  });

const illness: fc.Arbitrary<Illness> = fc.record({
  kind: fc.constantFrom("hangs", "crawls", "refuses"),
  fromMs: fc.nat({ max: 2000 }),
  lengthMs: times(60_000),
});

const breaker = fc.record({
  failureRatio: fc.constantFrom(0.1, 0.5, 1),
  minimumAttempts: fc.integer({ min: 1, max: 10 }),
  windowMs: fc.constantFrom(1000, 10_000),
  openMs: fc.constantFrom(200, 1000, 3000),
  maxOpenMs: fc.constantFrom(3000, 8000),
});
const optional = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined });

const limits: fc.Arbitrary<DestinationLimits> = fc.record({
  concurrency: optional(times(4)),
  rateLimit: optional(fc.record({ perSecond: fc.constantFrom(5, 50), burst: fc.constantFrom(50, 80) })),
  circuitBreaker: optional(breaker),
});

/** One destination is ill for a while behind a breaker, and replicas only stop in order. */
export function plansOfBreaker(): fc.Arbitrary<Plan> {
  return fc.tuple(plans(["terminate"]), illness, breaker).map(([plan, { kind, fromMs, lengthMs }, circuitBreaker]) => ({
    ...plan,
    refused: 0,
    outage: { fromMs: 0, lengthMs: 0 },
    pause: { fromMs: 0, lengthMs: 0 },
    faults: [],
    illness: { kind, fromMs, lengthMs },
    limits: { circuitBreaker },
  }));
}

/**
 * One destination is ill all the time and the others are well; nothing else goes wrong.
 */
export function plansOfIllness(): fc.Arbitrary<Plan> {
  return fc
    .tuple(plans(["kill"]), illness, fc.integer({ min: 2, max: 4 }), fc.integer({ min: 2, max: 20 }))
    .map(([plan, { kind }, destinations, concurrency]) => ({
      ...plan,
      destinations,
      concurrency,
      refused: 0,
      outage: { fromMs: 0, lengthMs: 0 },
      limits: {},
      pause: { fromMs: 0, lengthMs: 0 },
      faults: [],
      illness: { kind, fromMs: 0, lengthMs: Number.POSITIVE_INFINITY },
    }));
}

/** @param kinds of the faults that may happen */
export function plans(kinds: readonly FaultKind[]): fc.Arbitrary<Plan> {
  return fc.record({
    seed: fc.integer(),
    replicas: fc.integer({ min: 1, max: 3 }),
    rows: fc.integer({ min: 1, max: 160 }),
    destinations: fc.integer({ min: 1, max: 4 }),
    keys: fc.integer({ min: 1, max: 12 }),
    batchSize: fc.integer({ min: 1, max: 40 }),
    concurrency: fc.integer({ min: 1, max: 20 }),
    databaseMs: fc.oneof(times(5), times(200)),
    deliveryMs: fc.oneof(times(5), times(200)),
    arrivingMs: fc.oneof(fc.constant(0), times(2000)),
    refused: fc.oneof(fc.constant(0), fc.constant(0.05), fc.constant(0.4)),
    retryMs: fc.oneof(times(20), times(2000)),
    outage: fc.record({ fromMs: fc.nat({ max: 2000 }), lengthMs: fc.oneof(fc.constant(0), times(2000)) }),
    illness: fc.option(illness, { nil: undefined }),
    limits: fc.oneof(fc.constant({}), limits),
    pause: fc.record({ fromMs: fc.nat({ max: 2000 }), lengthMs: fc.oneof(fc.constant(0), times(20_000)) }),
    faults: fc.array(fault(kinds), { maxLength: 4 }),
  });
}

/** The topic of all rows of a destination, which is its name as well. */
export function topicOf(destination: number): string {
  return `topic-${destination}`;
}

/** Of the destination that may be ill, limited or paused. */
export const ILL_TOPIC = topicOf(0);
