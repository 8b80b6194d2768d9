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
  /** Share of the messages that go to the first routed destinations, up to three. */
  readonly lists: number;
  /** How many keys the rows have; one in eight has none. */
  readonly keys: number;
  readonly batchSize: number;
  readonly concurrency: number;
  /** How many times longer a poller rests than in a small fleet. */
  readonly fleetFactor: number;
  /** Longest way to the database, and back. */
  readonly databaseMs: number;
  /** Longest way to the receiver, and back. */
  readonly deliveryMs: number;
  /** The rows come within this time. */
  readonly arrivingMs: number;
  /** Share of the rows that a replica receives itself, and may claim at once; applications insert the others. */
  readonly received: number;
  /** Share of the deliveries that the receiver refuses. */
  readonly refused: number;
  /** Until a refused row is due again. */
  readonly retryMs: number;
  /** The receiver refuses everything from when, and for how long. */
  readonly outage: { readonly fromMs: number; readonly lengthMs: number };
  /** What becomes of the first destinations, one of each, when and for how long; empty if all are well. */
  readonly illnesses: readonly Illness[];
  /** Of each destination with an illness; of the first one if none is ill. */
  readonly limits: DestinationLimits;
  /** How many of the last destinations no route names: their rows have an override, and the topic of the first one. */
  readonly unrouted: number;
  /** What becomes of rows that use up their attempts; undefined if their number is unlimited. */
  readonly parking: Parking | undefined;
  /** Share of the refusals that ask to wait, and for how long. */
  readonly retryAfter: { readonly share: number; readonly ms: number };
  /** When an operator pauses the first destination, and for how long. */
  readonly pause: { readonly fromMs: number; readonly lengthMs: number };
  readonly faults: readonly Fault[];
}

export interface Illness {
  /** `hangs`: no answer in ten seconds; `crawls`: an answer after five; `refuses`: a refusal at once. */
  readonly kind: "hangs" | "crawls" | "refuses";
  readonly fromMs: number;
  readonly lengthMs: number;
}

/** Rows are parked, and an operator looks after them. */
export interface Parking {
  readonly maxAttempts: number;
  /** How often the operator looks. */
  readonly everyMs: number;
  /** Share of the parked rows that the operator discards; all others are retried. */
  readonly discarded: number;
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
    lengthMs: fc.oneof(times(5000), times(50_000)),
  });

const illness: fc.Arbitrary<Illness> = fc.record({
  kind: fc.constantFrom("hangs", "crawls", "refuses"),
  fromMs: fc.nat({ max: 2000 }),
  lengthMs: times(30_000),
});

const illnesses = (min: number) => fc.array(illness, { minLength: min, maxLength: 3 });

const breaker = fc.record({
  failureRatio: fc.constantFrom(0.1, 0.5, 1),
  minimumAttempts: fc.integer({ min: 1, max: 10 }),
  windowMs: fc.constantFrom(1000, 10_000),
  openMs: fc.constantFrom(200, 1000, 3000),
  maxOpenMs: fc.constantFrom(3000, 8000),
});
const retryAfter = fc.record({ share: fc.constantFrom(0, 0.3, 1), ms: fc.oneof(times(300), times(3000)) });
const parking: fc.Arbitrary<Parking> = fc.record({
  maxAttempts: times(3),
  everyMs: fc.integer({ min: 50, max: 1000 }),
  discarded: fc.constantFrom(0, 0.3, 1),
});
const optional = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined });

const limits: fc.Arbitrary<DestinationLimits> = fc.record({
  concurrency: optional(times(4)),
  rateLimit: optional(fc.record({ perSecond: fc.constantFrom(5, 50), burst: fc.constantFrom(50, 80) })),
  circuitBreaker: optional(breaker),
});

/** One to three destinations are ill for a while behind a breaker each; nothing else goes wrong. */
export function plansOfBreaker(): fc.Arbitrary<Plan> {
  return fc.tuple(plans(["terminate"]), illnesses(1), breaker).map(([plan, ills, circuitBreaker]) => ({
    ...plan,
    refused: 0,
    outage: { fromMs: 0, lengthMs: 0 },
    pause: { fromMs: 0, lengthMs: 0 },
    faults: [],
    illnesses: ills,
    limits: { circuitBreaker },
  }));
}

/**
 * One to three destinations are ill all the time and the others are well; nothing else goes wrong. There are more slots
 * than ill destinations: each takes one until it is known as ill.
 */
export function plansOfIllness(): fc.Arbitrary<Plan> {
  return fc
    .tuple(plans(["kill"]), illnesses(1), times(3), times(18), fc.oneof(times(12), times(200)))
    .map(([plan, ills, well, slots, keys]) => ({
      ...plan,
      // Of few keys, each has rows of an ill destination.
      keys,
      destinations: ills.length + well,
      // Besides one for each ill destination, one is kept for destinations that have answered: the others share the
      // rest.
      concurrency: ills.length + 1 + slots,
      refused: 0,
      outage: { fromMs: 0, lengthMs: 0 },
      limits: {},
      pause: { fromMs: 0, lengthMs: 0 },
      faults: [],
      illnesses: ills.map(({ kind }) => ({ kind, fromMs: 0, lengthMs: Number.POSITIVE_INFINITY })),
    }));
}

/** @param kinds of the faults that may happen */
export function plans(kinds: readonly FaultKind[]): fc.Arbitrary<Plan> {
  return fc.record({
    seed: fc.integer(),
    replicas: fc.integer({ min: 1, max: 3 }),
    rows: fc.integer({ min: 1, max: 160 }),
    destinations: fc.integer({ min: 1, max: 4 }),
    lists: fc.constantFrom(0, 0, 0.5, 1),
    keys: fc.integer({ min: 1, max: 12 }),
    batchSize: fc.integer({ min: 1, max: 40 }),
    concurrency: fc.integer({ min: 1, max: 20 }),
    fleetFactor: fc.constantFrom(1, 1, 4),
    databaseMs: fc.oneof(times(5), times(200)),
    deliveryMs: fc.oneof(times(5), times(200)),
    arrivingMs: fc.oneof(fc.constant(0), times(2000)),
    received: fc.constantFrom(0, 0.5, 1),
    refused: fc.oneof(fc.constant(0), fc.constant(0.05), fc.constant(0.4)),
    retryMs: fc.oneof(times(20), times(2000)),
    outage: fc.record({ fromMs: fc.nat({ max: 2000 }), lengthMs: fc.oneof(fc.constant(0), times(2000)) }),
    illnesses: illnesses(0),
    unrouted: fc.nat({ max: 1 }),
    parking: optional(parking),
    retryAfter,
    limits: fc.oneof(fc.constant({}), limits),
    pause: fc.record({ fromMs: fc.nat({ max: 2000 }), lengthMs: fc.oneof(fc.constant(0), times(20_000)) }),
    faults: fc.array(fault(kinds), { maxLength: 4 }),
  });
}

/** The topic of all rows of a destination, which is its name as well. */
export function topicOf(destination: number): string {
  return `topic-${destination}`;
}

/** Of the destination that may be paused. */
export const FIRST_TOPIC = topicOf(0);
