import type { ClaimedRow, MessageId } from "../../../src/model/rows.ts";
import type { Clock, Timer } from "../../../src/time/clock.ts";
import { History } from "../../support/history.ts";
import { manualTime } from "../../support/manualTime.ts";
import { MemoryDestinations } from "../../support/memoryDestinations.ts";
import { seeded } from "../../support/random.ts";
import { OutboxModel } from "../store/model.ts";
import { type Fault, ILL_TOPIC, type Plan, topicOf } from "./plan.ts";
import { POLL_INTERVAL_MS, SimulatedReplica } from "./replica.ts";

/** A killed replica's leases, and the time until a live one looks. */
const BACK_WITHIN_MS = 35_000;
/** Until an ill destination is known as one, and what was claimed for it is given back. */
const BESIDE_ILLNESS_MS = 3000;

/**
 * Several pollers, one database and one receiver in virtual time: a run of minutes takes milliseconds, and the same plan makes the same run.
 * The pollers are the real ones with their loops, leases and settlers; the database is the model that the property test of the stores compares the real
 * one with.
 */
export class World {
  readonly plan: Plan;
  readonly random: () => number;
  readonly #time = manualTime(0);
  /** What replicas share about destinations. */
  readonly destinations: MemoryDestinations;
  readonly #model: OutboxModel;
  readonly #history: History;
  readonly #replicas: SimulatedReplica[];
  readonly #brokenRules = new Set<string>();
  /** Rows that were given to replicas, each as often as it was. */
  claimedRows = 0;
  #refusals = 0;
  /** When the last probe of a breaker began. */
  #probedAt = Number.NEGATIVE_INFINITY;
  /** Deliveries to a destination while it was ill. */
  #metIllness = 0;

  constructor(plan: Plan) {
    this.plan = plan;
    this.random = seeded(plan.seed);
    this.#model = new OutboxModel(plan.replicas);
    this.destinations = new MemoryDestinations(() => this.clock.monotonic());
    this.#history = new History(() => this.clock.monotonic());
    this.#replicas = Array.from({ length: plan.replicas }, (_, slot) => new SimulatedReplica(this, slot));
  }

  /** One for each destination. */
  get topics(): readonly string[] {
    return Array.from({ length: this.plan.destinations }, (_, n) => topicOf(n));
  }

  get clock(): Clock {
    return this.#time.clock;
  }

  get timer(): Timer {
    return this.#time.timer;
  }

  /** The database as it is now. */
  get database(): OutboxModel {
    this.#model.now = this.clock.monotonic();
    return this.#model;
  }

  /** A whole number from 0 to below `limit`. */
  draw(limit: number): number {
    return Math.floor(this.random() * limit);
  }

  /** A rule was broken, once or more often. */
  breaks(rule: string): void {
    this.#brokenRules.add(rule);
  }

  /** A replica begins to deliver a row. */
  begins({ id, claimToken }: Pick<ClaimedRow, "id" | "claimToken">, isProbe: boolean): void {
    const row = this.database.row(id);
    if (row.token !== claimToken) this.breaks(`row ${row.position} is delivered without a claim (${row.state})`);
    // A replica that has not heard of the opening yet may begin others.
    if (row.topic === ILL_TOPIC && isProbe) void this.#probes();
  }

  async #probes(): Promise<void> {
    const { limits, faults } = this.plan;
    const now = this.clock.monotonic();
    const [state] = (await this.destinations.states()).filter(({ name }) => name === ILL_TOPIC);
    if (limits.circuitBreaker === undefined || state?.breaker.state !== "half-open" || faults.length > 0) return;
    const gapMs = now - this.#probedAt;
    if (gapMs < limits.circuitBreaker.openMs) this.breaks(`two probes within ${gapMs} ms`);
    this.#probedAt = now;
  }

  /**
   * A row comes to the receiver.
   *
   * @param ms from now
   * @returns whether the receiver takes it
   */
  arrives(id: MessageId, ms: number): Promise<boolean> {
    const ill = this.#isIll(id) ? this.plan.illness?.kind : undefined;
    if (ill !== undefined) this.#metIllness += 1;
    return new Promise((resolve) => {
      this.timer(ill === "hangs" ? TIMEOUT_MS : ill === "crawls" ? CRAWL_MS : ms, () => {
        const accepted = ill === undefined ? !this.#refuses() : ill === "crawls";
        if (accepted) this.#history.received(id);
        else this.#refusals += 1;
        resolve(accepted);
      });
    });
  }

  /**
   * Runs the plan until every row is finished.
   *
   * @returns what was wrong; empty when nothing was
   */
  async run(): Promise<readonly string[]> {
    this.#scheduleRows();
    this.#schedulePause();
    for (const fault of this.plan.faults) this.timer(fault.atMs, () => this.#inflict(fault));
    await Promise.all(this.#replicas.map((replica) => replica.start()));
    const endsBy = this.#longestMs();
    while (!this.#isDone() && this.clock.monotonic() < endsBy && this.claimedRows <= this.#mostClaimedRows()) {
      await this.#advance();
    }
    if (this.#isDone()) await this.#stopAll();
    return this.#verdict();
  }

  /**
   * Runs a plan of an illness that does not end.
   *
   * @returns what was wrong; the rows that the illness does not touch have to be delivered as if it were not there
   */
  async runBesideIllness(): Promise<readonly string[]> {
    this.#scheduleRows();
    await Promise.all(this.#replicas.map((replica) => replica.start()));
    const { rows, arrivingMs } = this.plan;
    const endsBy = arrivingMs + BESIDE_ILLNESS_MS + rows * this.#oneRowMs();
    const untouched = () => {
      const ill = this.database.rows.filter(({ topic }) => topic === ILL_TOPIC);
      const keys = new Set(ill.map(({ key }) => key).filter((key) => key !== null));
      return this.database.rows.filter(({ topic, key }) => topic !== ILL_TOPIC && (key === null || !keys.has(key)));
    };
    const left = () => untouched().filter(({ state }) => state !== "sent").length;
    const hasCome = () => this.database.rows.length === rows;
    while ((!hasCome() || left() > 0) && this.clock.monotonic() < endsBy) await this.#advance();
    const unfinished = left();
    for (const replica of this.#replicas) replica.kill();
    const held = unfinished === 0 ? [] : [`${unfinished} of ${untouched().length} rows wait for an ill destination`];
    return [...this.#brokenRules, ...held, ...this.#history.violations().filter((each) => !each.includes("never"))];
  }

  async #advance(): Promise<void> {
    await this.#time.advance(STEP_MS);
  }

  async #stopAll(): Promise<void> {
    while (this.clock.monotonic() < this.#faultsEnd()) await this.#advance();
    let stopped = false;
    void Promise.all(this.#replicas.map((replica) => replica.stop())).then(() => {
      stopped = true;
    });
    const deadline = this.clock.monotonic() + BACK_WITHIN_MS;
    while (!stopped && this.clock.monotonic() < deadline) await this.#advance();
    if (!stopped) this.breaks("the replicas do not stop");
  }

  #verdict(): readonly string[] {
    const { plan } = this;
    // Whether something arrived is unknown to a replica that a fault has met.
    if (plan.faults.some(({ kind }) => kind !== "terminate"))
      this.#history.mayRepeat(this.database.rows.map(({ id }) => id));
    const unfinished = this.database.rows.filter(({ state }) => state !== "sent").length;
    const claims = `${this.claimedRows} rows claimed for ${plan.rows} rows and ${this.#refusals} refusals`;
    return [
      ...this.#brokenRules,
      ...(unfinished === 0 ? [] : [`${unfinished} rows are unfinished after ${this.clock.monotonic()} ms; ${claims}`]),
      ...(this.claimedRows <= this.#mostClaimedRows() ? [] : [claims]),
      ...this.#history.violations(),
    ];
  }

  #scheduleRows(): void {
    const { rows, keys, arrivingMs } = this.plan;
    const times = Array.from({ length: rows }, () => this.draw(arrivingMs + 1)).sort((a, b) => a - b);
    for (const [n, ms] of times.entries()) {
      const key = this.draw(8) === 0 ? null : `key-${this.draw(keys)}`;
      this.timer(ms, () => this.#insert(`row-${n}` as MessageId, key));
    }
  }

  #schedulePause(): void {
    const { fromMs, lengthMs } = this.plan.pause;
    if (lengthMs === 0) return;
    this.timer(fromMs, () => void this.destinations.pause(ILL_TOPIC, { by: "ops", reason: "test", forMs: lengthMs }));
  }

  #insert(id: MessageId, key: string | null): void {
    this.database.insert(id, key, 0, { topic: topicOf(this.draw(this.plan.destinations)) });
    // Rows without a key have no order: each is a key of its own to the history.
    this.#history.sent(id, key ?? id);
    this.#history.acknowledged(id);
  }

  #inflict({ kind, replica: slot, lengthMs }: Fault): void {
    const index = slot % this.plan.replicas;
    const replica = this.#replicas[index];
    if (replica === undefined) return;
    const until = this.clock.monotonic() + lengthMs;
    if (kind === "pause") replica.pause(until);
    else if (kind === "cut" || kind === "held") replica.outbox.breakWay(kind, until);
    else {
      if (kind === "kill") replica.kill();
      else void replica.stop();
      this.timer(lengthMs, () => this.#replace(index));
    }
  }

  #replace(index: number): void {
    const replica = new SimulatedReplica(this, index);
    this.#replicas[index] = replica;
    void replica.start();
  }

  /** Whether a row goes to the destination that is ill now. */
  #isIll(id: MessageId): boolean {
    const { illness } = this.plan;
    if (illness === undefined || this.database.row(id).topic !== ILL_TOPIC) return false;
    const since = this.clock.monotonic() - illness.fromMs;
    return since >= 0 && since < illness.lengthMs;
  }

  #refuses(): boolean {
    const { outage, refused } = this.plan;
    const since = this.clock.monotonic() - outage.fromMs;
    return (since >= 0 && since < outage.lengthMs) || this.random() < refused;
  }

  #isDone(): boolean {
    const { database, plan } = this;
    return database.rows.length === plan.rows && database.rows.every(({ state }) => state === "sent");
  }

  /**
   * A row is claimed again for a reason: it was refused, or a row before it was, while two claims at most waited behind that; its destination was ill,
   * and it was given back; or a fault took what a replica held. What a limit does not let through is given back once by each
   * replica, and now and then a claim returns more than may wait.
   */
  #mostClaimedRows(): number {
    const { rows, batchSize, concurrency, faults, replicas, limits } = this.plan;
    const isLimited = limits.rateLimit !== undefined || limits.concurrency !== undefined;
    return (
      (isLimited ? 3 : 1) * rows +
      3 * batchSize * replicas +
      (this.#refusals + this.#metIllness) * 3 * batchSize +
      faults.length * (3 * batchSize + concurrency) * 20
    );
  }

  #longestMs(): number {
    const { rows, arrivingMs, outage, illness, refused } = this.plan;
    const illMs = illness === undefined ? 0 : illness.fromMs + illness.lengthMs;
    const { pause, limits } = this.plan;
    const ended = this.#faultsEnd() + outage.fromMs + outage.lengthMs + illMs + pause.fromMs + pause.lengthMs;
    const rateMs = limits.rateLimit === undefined ? 0 : (2 * rows * 1000) / limits.rateLimit.perSecond;
    // After everything that was scheduled has ended, a breaker may open for refusals that chance brings.
    const openings = OPENINGS + 2 * refused * rows;
    const openMs = limits.circuitBreaker === undefined ? 0 : openings * 1.2 * limits.circuitBreaker.maxOpenMs;
    return ended + arrivingMs + BACK_WITHIN_MS + rateMs + openMs + 5 * rows * this.#oneRowMs();
  }

  #oneRowMs(): number {
    const { databaseMs, deliveryMs, retryMs } = this.plan;
    return 6 * databaseMs + 2 * deliveryMs + retryMs + 2 * POLL_INTERVAL_MS;
  }

  #faultsEnd(): number {
    return Math.max(0, ...this.plan.faults.map(({ atMs, lengthMs }) => atMs + lengthMs + 1));
  }
}

const STEP_MS = 50;
const OPENINGS = 20;
const TIMEOUT_MS = 10_000;
const CRAWL_MS = 5000;
