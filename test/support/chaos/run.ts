import { randomInt } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { eventually } from "../eventually.ts";
import type { History } from "../history.ts";
import type { Services } from "../service.ts";
import { within } from "../within.ts";
import { runApplications } from "./applications.ts";
import { readStream, recordRequests } from "./arrivals.ts";
import { Backlog } from "./backlog.ts";
import { check } from "./checker.ts";
import { Faults } from "./faults.ts";
import { CONCURRENCY, type Fleet, LEASE_MS, SOURCE, startBroker, startFleet, TRANSFORMED_SOURCE } from "./fleet.ts";
import { journalByKey } from "./journal.ts";
import { LIST_DESTINATIONS, ListHistory } from "./lists.ts";
import { decideOnParked, PARKS_REFUSED } from "./operator.ts";
import { MOMENTARY, type PlannedFault, planEachOnce, planFaults } from "./plan.ts";
import { POISON_PREFIX, poison, UNFINISHED } from "./poison.ts";
import { type FaultName, selectedFaults } from "./selection.ts";
import { isPosted, sendAtPace, type Way, wayOf } from "./senders.ts";
import { tell } from "./story.ts";
import { Timeline } from "./timeline.ts";

export interface RunOptions {
  readonly seed: number;
  readonly durationMs: number;
  /** Whether each fault comes once, and soon; otherwise they are drawn by their weights. */
  readonly eachOnce: boolean;
  /** How many replicas of each role. */
  readonly perRole: number;
  readonly selected: ReadonlySet<FaultName>;
  /** Called with each line of the timeline at once, and with the result. */
  readonly print: (line: string) => void;
}

/** What a run looks like from outside when nothing was wrong. */
export interface RunResult {
  readonly acknowledged: number;
  readonly repeated: number;
  readonly claims: number;
  /** From the acknowledgement of a message to its first arrival, at most, in ms. */
  readonly longestMs: number;
  /** Parked rows that the operator retried and discarded. */
  readonly parked: { readonly retried: number; readonly discarded: number };
  /** How often each kind of fault was carried out. */
  readonly faults: ReadonlyMap<string, number>;
  /** Kinds that were selected and never carried out although the means were there. */
  readonly neverCarriedOut: readonly string[];
}

/** Bounds what a long run keeps in memory and on disk. */
const MOST_MESSAGES = 300_000;
/** Enough for each fault of a short run to meet some of each key. */
const MOST_MESSAGES_EACH_ONCE = 2500;
/** After the last fault: leases, retries and what the senders still repeat. */
const ALL_RIGHT_WITHIN_MS = 90_000;
const STOPS_WITHIN_MS = 30_000;

/** The longest a run may take, for the time limit of its test. What waits at its end may take half as long as it. */
export function longestRunMs(durationMs: number): number {
  return durationMs * 1.5 + 5 * 60_000;
}

/**
 * `SVC_FAULTS_SEED` and `SVC_FAULTS_MINUTES`, a seed of its own and each fault once if they are not set; and {@link selectedFaults}.
 *
 * @throws Error for what is not a number, or not a fault
 */
export function runOptionsOf(env: NodeJS.ProcessEnv): Omit<RunOptions, "print"> {
  const numberOf = (name: string, otherwise: number) => {
    const text = env[name];
    if (text === undefined || text === "") return otherwise;
    const value = Number(text);
    if (!(value > 0)) throw new Error(`${name} is ${JSON.stringify(text)}; expected is a number above 0`);
    return value;
  };
  const eachOnce = (env.SVC_FAULTS_MINUTES ?? "") === "";
  return {
    seed: numberOf("SVC_FAULTS_SEED", randomInt(1, 1_000_000)),
    durationMs: numberOf("SVC_FAULTS_MINUTES", 0.3) * 60_000,
    eachOnce,
    perRole: eachOnce ? 2 : 3,
    selected: selectedFaults(env),
  };
}

/**
 * Runs the service, some replicas of each role, with traffic and random faults for a time; then lifts every fault, waits until everything
 * acknowledged is delivered, and checks the history of it all.
 *
 * @throws Error with the seed, the violations and the timeline when anything was wrong
 */
export async function runFaults(services: Services, options: RunOptions): Promise<RunResult> {
  const { seed, durationMs, eachOnce, print } = options;
  const minutes = durationMs / 60_000;
  print(`random faults: ${eachOnce ? "each one once" : `${minutes} minutes`}, SVC_FAULTS_SEED=${seed}`);
  const timeline = new Timeline(print);
  try {
    return await run(services, options, timeline);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    const lines = timeline.lines().join("\n");
    throw new Error(
      `SVC_FAULTS_SEED=${seed}${eachOnce ? "" : ` SVC_FAULTS_MINUTES=${minutes}`}\n${reason}\n\ntimeline:\n${lines}`,
    );
  }
}

async function run(
  services: Services,
  { seed, durationMs, eachOnce, perRole, selected }: RunOptions,
  timeline: Timeline,
): Promise<RunResult> {
  const broker = await startBroker(services);
  const ways: readonly Way[] = ["http", ...(broker === undefined ? [] : ["stream" as const]), "transformed", "list"];
  const history = new ListHistory(Date.now, (key) => wayOf(key, ways) === "list");
  const receiver = await services.receiver();
  const outage = { isOn: false };
  recordRequests(receiver, history, seed, outage);
  const stream = broker && (await readStream(broker, history));
  if (stream !== undefined) services.defer(() => stream.close());
  const destinations = {
    http: { baseUrl: receiver.url, path: "/hook", circuitBreaker: BREAKER },
    ...Object.fromEntries(
      LIST_DESTINATIONS.map((each) => [each, { baseUrl: receiver.url, path: `/${each}`, circuitBreaker: BREAKER }]),
    ),
    ...(stream === undefined ? {} : { stream: { ...stream.destination, rateLimit: RATE_LIMIT } }),
    ...(selected.has("parked rows")
      ? { parking: { baseUrl: receiver.url, path: "/hook", circuitBreaker: BREAKER, ...PARKS_REFUSED } }
      : {}),
  };
  const fleet = await startFleet({ services, timeline, broker, destinations, outage, perRole, selected });
  await allReady(fleet);

  timeline.start();
  const failed = new AbortController();
  const faults = new Faults(fleet, timeline);
  const to = fleet.replicas.ingest;
  const mostMessages = eachOnce ? MOST_MESSAGES_EACH_ONCE : MOST_MESSAGES;
  const { signal } = failed;
  const { database } = fleet;
  const backlog = new Backlog({ database, durationMs, signal });
  const sending = sendAtPace({ history, backlog, to, durationMs, mostMessages, ways, signal });
  const applications = selected.has("applications")
    ? runApplications({ history, backlog, database, durationMs, ways, seed, selected, signal })
    : Promise.resolve();
  const poisoning = poison({ database, ingest: to, durationMs, seed, selected, signal });
  const ended = new AbortController();
  signal.addEventListener("abort", () => ended.abort(), { once: true });
  const deciding = selected.has("parked rows")
    ? decideOnParked(to, seed, ended.signal)
    : Promise.resolve({ retried: 0, discarded: 0 });
  deciding.catch((error: unknown) => failed.abort(error)); // Awaited below.
  const isSelected = (kind: FaultName) => selected.has(kind);
  const planned = { seed, durationMs, leaseMs: LEASE_MS, replicas: perRole, isSelected };
  const plan = eachOnce ? planEachOnce(planned) : planFaults(planned);
  const inflicting = inflictAll(faults, plan, signal);
  // All have ended when this settles: nothing is started any more that somebody would have to end.
  await Promise.all(
    [sending, applications, poisoning, inflicting].map((work) => work.catch((error: unknown) => failed.abort(error))),
  );
  signal.throwIfAborted();
  // A database that was put back to a copy may have a pause from then.
  await database.query("UPDATE outbox_destination SET paused_at = NULL");
  timeline.note(`every fault is lifted; ${history.acknowledgedCount} messages were acknowledged`);

  const unfinished = () => database.query<{ state: string; kind: string; rows: number }>(UNFINISHED);
  const haveCome = () => history.missing.every((id) => timeline.mayBeLost(history.of(id)?.acknowledgedAt));
  const haveEnded = async () => haveCome() && (await unfinished()).length === 0;
  // As long as messages come. The checker reports whatever has not come by then.
  let missing: number;
  do {
    missing = history.missing.length;
    await eventually(haveEnded, { timeoutMs: ALL_RIGHT_WITHIN_MS, intervalMs: 200 }).catch(() => {});
  } while (history.missing.length < missing && !(await haveEnded()));
  ended.abort();
  const { retried, discarded } = await deciding;
  const notReady = await allReady(fleet).then(
    () => [],
    (error: Error) => [error.message],
  );
  timeline.note("the deliveries have ended");
  const stuck = await unfinished();
  const ends = await within(
    STOPS_WITHIN_MS,
    "the stop of all replicas",
    Promise.all(fleet.all.map((each) => each.stop())),
  );
  await stream?.finish();

  const journal = journalByKey((sql, params) => fleet.database.query(sql, params));
  const goesToBroker = (key: string) => wayOf(key, ways) === "stream";
  const verdict = await check({
    history,
    timeline,
    goesToBroker,
    comesThroughInbox: isPosted,
    leaseMs: LEASE_MS,
    concurrency: CONCURRENCY,
    journal,
  });
  const log = (name: string) => fleet.all.flatMap((each) => (name.startsWith(`${each.slot}.`) ? each.log(name) : []));
  const wrong = [
    ...(verdict.violations.length > 0 ? [tell(verdict, history, timeline, log)] : []),
    ...(await wrongInbox(fleet, history, timeline)),
    ...stuck.map(({ state, kind, rows }) => `${rows} rows of the outbox are ${state} for good (${kind})`),
    ...notReady,
    ...ends.flatMap(({ code, signal }, n) =>
      code === 0 ? [] : [`${fleet.all[n]?.name} ended with ${signal ?? code} when it was stopped at the end`],
    ),
    ...fleet.all.flatMap(({ unexpectedEnds }) =>
      unexpectedEnds.map(({ name, lastLines }) => `${name} ended by itself:\n${lastLines.join("\n")}`),
    ),
  ];
  if (wrong.length > 0) throw new Error(wrong.join("\n\n"));
  const { repeated, claims } = verdict;
  return {
    acknowledged: history.acknowledgedCount,
    repeated,
    claims,
    longestMs: history.longestMs,
    parked: { retried, discarded },
    faults: faults.counts,
    neverCarriedOut: MOMENTARY.filter(
      (kind) => isSelected(kind) && !faults.counts.has(kind) && !faults.impossible.has(kind),
    ),
  };
}

async function inflictAll(faults: Faults, plan: readonly PlannedFault[], signal: AbortSignal): Promise<void> {
  const startedAt = performance.now();
  const underWay: Promise<void>[] = [];
  try {
    for (const fault of plan) {
      await sleep(Math.max(0, startedAt + fault.atMs - performance.now()), undefined, { signal });
      const inflicted = faults.inflict(fault);
      inflicted.catch(() => {}); // Awaited below.
      underWay.push(inflicted);
    }
  } finally {
    await Promise.all(underWay);
  }
}

/** Waits until each replica says that it is ready. */
async function allReady({ all }: Fleet): Promise<void> {
  await Promise.all(
    all.map((replica) =>
      eventually(() => replica.isReady(), {
        timeoutMs: ALL_RIGHT_WITHIN_MS,
        intervalMs: 100,
        label: `${replica.name} ready`,
      }),
    ),
  );
}

/** The inbox holds what was acknowledged to the senders and nothing else, and all of it is relayed. */
async function wrongInbox({ database }: Fleet, history: History, timeline: Timeline): Promise<readonly string[]> {
  const rows = await database.query<{ message: string; state: string }>(
    `SELECT idempotency_key AS message, state FROM inbox
     WHERE source IN ('${SOURCE}', '${TRANSFORMED_SOURCE}') AND idempotency_key NOT LIKE '${POISON_PREFIX}%'`,
  );
  const stored = new Set(rows.map(({ message }) => message));
  const wrong = (what: string, messages: readonly string[]) =>
    messages.length === 0 ? [] : [`${messages.length} ${what}, among them ${messages.slice(0, 5).join(", ")}`];
  return [
    ...wrong(
      "messages were acknowledged and are not in the inbox",
      history.acknowledgedIds.filter(
        (id) => isPosted(id) && !stored.has(id) && !timeline.mayBeLost(history.of(id)?.acknowledgedAt),
      ),
    ),
    ...wrong(
      "messages are in the inbox and were not acknowledged",
      [...stored].filter((id) => history.of(id)?.acknowledgedAt === undefined),
    ),
    ...wrong(
      "rows of the inbox are not processed",
      rows.filter(({ state }) => state !== "processed").map(({ message }) => message),
    ),
  ];
}

/** Opens for an outage, and now and then for the few rows that the receiver refuses. */
const BREAKER = { minimumAttempts: 5, windowMs: 5000, openMs: 500, maxOpenMs: 2000 };
/** Above the pace of the senders: it shapes what an outage has gathered. */
const RATE_LIMIT = { perSecond: 1000, burst: 2000 };
