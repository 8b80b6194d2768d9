import { seeded } from "../random.ts";

export const ROLES = ["ingest", "relay", "poller"] as const;
export type Role = (typeof ROLES)[number];

/** How often each kind of fault is drawn, against the others. */
const WEIGHTS = {
  /** SIGKILL of a replica, which is started again after `pauseMs`. */
  kill: 6,
  /** SIGTERM of a replica, which is started again when it has ended. */
  terminate: 3,
  /** SIGSTOP of a replica, and SIGCONT after `lengthMs`: longer than the lease. */
  suspend: 5,
  /** `pg_terminate_backend` of a share of the service's backends. */
  backends: 3,
  /** PostgreSQL is stopped, with its sessions ended in order, and started again after `pauseMs`. */
  "postgres fast": 1,
  /** The same, without order: the next start recovers. */
  "postgres immediate": 1,
  /** A client takes all the connections that the server has left, for two seconds, and those of a share of the backends, which are terminated. */
  connections: 1,
  /** The broker is stopped and started again after `pauseMs`. */
  broker: 2,
  /** Every connection of a replica to the database breaks, and so does each new one, for `lengthMs`. */
  cut: 3,
  /** No byte passes between a replica and the database for `lengthMs`. */
  held: 3,
  /** Each chunk of bytes between a replica and the database waits `delayMs`, for `lengthMs`. */
  slowed: 3,
  /** A client holds a lock on a whole table for up to 0.8 s. */
  lock: 3,
  /** A client holds a share of the unfinished rows of the outbox for 0.6 to 1.4 s: longer than an outcome waits for one. */
  rows: 3,
  /** The indexes of the last migrations are dropped, and `svc migrate` makes them again. */
  migrate: 2,
  /** PostgreSQL is stopped for a copy of its data, and put back to that copy after `lengthMs`. */
  restore: 2,
  /** Somebody sets how the database writes dates, intervals and bytes, and sets it back after `lengthMs`; a share of the backends is terminated. */
  settings: 1,
  /** The clock of PostgreSQL is wrong for `lengthMs`, by up to 37 s. */
  clock: 3,
  /** An operator pauses a destination for `lengthMs`. */
  pause: 2,
  /** The HTTP receiver refuses everything for `lengthMs`: its breaker opens. */
  outage: 2,
} as const;

export type MomentaryFault = keyof typeof WEIGHTS;
export const MOMENTARY = Object.keys(WEIGHTS) as readonly MomentaryFault[];

/** A drawn fault; each kind uses some of the parameters. */
export interface PlannedFault {
  /** ms after the beginning of the run. */
  readonly atMs: number;
  readonly kind: MomentaryFault;
  readonly role: Role;
  /** Which of the replicas of the role. */
  readonly index: number;
  readonly lengthMs: number;
  readonly pauseMs: number;
  readonly delayMs: number;
  /** In (0, 1]. */
  readonly share: number;
  /** Whether it waits until it can be carried out; otherwise it is left out when it cannot. */
  readonly waits: boolean;
}

export interface PlanOptions {
  readonly seed: number;
  readonly durationMs: number;
  /** A suspension lasts longer than this. */
  readonly leaseMs: number;
  /** How many there are of each role. */
  readonly replicas: number;
  /** Which kinds are drawn. */
  readonly isSelected: (kind: MomentaryFault) => boolean;
}

/**
 * Draws the faults of a run, one every 1 to 4 s. The same seed draws the same faults from the same kinds; a longer run has those of a shorter one and
 * more.
 */
export function planFaults({ seed, durationMs, leaseMs, replicas, isSelected }: PlanOptions): readonly PlannedFault[] {
  const kinds = MOMENTARY.filter(isSelected);
  if (kinds.length === 0) return [];
  const random = seeded(seed);
  const between = (low: number, high: number) => Math.round(low + random() * (high - low));
  const faults: PlannedFault[] = [];
  for (let atMs = between(1000, 4000); atMs < durationMs; atMs += between(1000, 4000)) {
    // Every fault draws the same number of times, whatever its kind.
    const kind = drawKind(kinds, random());
    const role = drawRole(random());
    const index = Math.floor(random() * replicas);
    const length = random();
    const pauseMs = between(0, 2000);
    const delayMs = between(5, 250);
    const share = 0.1 + 0.9 * random();
    const lengthMs = kind === "suspend" ? Math.round(leaseMs * (1.2 + 1.3 * length)) : Math.round(1000 + 7000 * length);
    faults.push({ atMs, kind, role, index, lengthMs, pauseMs, delayMs, share, waits: false });
  }
  return faults;
}

/** The same for a short run: each kind once, in an order of the seed's, and soon over. */
export function planEachOnce({
  seed,
  durationMs,
  leaseMs,
  replicas,
  isSelected,
}: PlanOptions): readonly PlannedFault[] {
  const random = seeded(seed);
  const between = (low: number, high: number) => Math.round(low + random() * (high - low));
  const turns = MOMENTARY.map((kind) => ({ kind, place: random() })).sort((a, b) => a.place - b.place);
  // The last ones may wait for others, and need traffic too.
  const everyMs = (BEGUN_WITHIN * durationMs) / turns.length;
  const faults = turns.map(({ kind }, n) => ({
    atMs: Math.round((n + random()) * everyMs),
    kind,
    role: drawRole(random()),
    index: Math.floor(random() * replicas),
    lengthMs: lengthOf(kind, leaseMs, random()),
    pauseMs: between(0, 500),
    delayMs: between(5, 250),
    share: 0.1 + 0.9 * random(),
    waits: true,
  }));
  return faults.filter(({ kind }) => isSelected(kind));
}

function lengthOf(kind: MomentaryFault, leaseMs: number, drawn: number): number {
  if (kind === "suspend") return Math.round(leaseMs * (1.2 + 0.2 * drawn));
  // The service notices a wrong clock within a second, on a busy machine somewhat later.
  return Math.round((kind === "clock" ? 3000 : 500) + 1000 * drawn);
}

const BEGUN_WITHIN = 0.6;

function drawKind(kinds: readonly MomentaryFault[], drawn: number): MomentaryFault {
  let left = drawn * kinds.reduce((sum, kind) => sum + WEIGHTS[kind], 0);
  const found = kinds.find((kind) => {
    left -= WEIGHTS[kind];
    return left < 0;
  });
  return found ?? kinds[0] ?? "kill";
}

/** Half of the faults meet a poller: only a poller can repeat or reorder. */
function drawRole(drawn: number): Role {
  if (drawn < 0.5) return "poller";
  return drawn < 0.75 ? "relay" : "ingest";
}
