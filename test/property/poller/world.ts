import { deliveryId } from "../../../src/model/deliveries.ts";
import type { ClaimedRow, MessageId, Outcome } from "../../../src/model/rows.ts";
import type { Expansion } from "../../../src/ports/store.ts";
import type { Clock, Timer } from "../../../src/time/clock.ts";
import { History } from "../../support/history.ts";
import { manualTime } from "../../support/manualTime.ts";
import { MemoryDestinations } from "../../support/memoryDestinations.ts";
import { seeded } from "../../support/random.ts";
import { LIST_TOPIC, type ModelRow, OutboxModel, precedes } from "../store/model.ts";
import { type Fault, FIRST_TOPIC, type Illness, type Plan, topicOf } from "./plan.ts";
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
  /** One for each destination. */
  readonly topics: readonly string[];
  /** Topics that a route names. */
  readonly routed: readonly string[];
  /** Destinations with limits. */
  readonly limited: readonly string[];
  /** The destinations of a message of a list; the last one has a condition. */
  readonly list: readonly string[];
  /** A loop gives up one turn between its passes. */
  readonly #time = manualTime(0, 2);
  /** What replicas share about destinations. */
  readonly destinations: MemoryDestinations;
  readonly #model: OutboxModel;
  /** Of the rows that are no deliveries, whose order holds wherever they go. */
  readonly #history: History;
  /** Of all that is delivered: order holds for each key and destination. */
  readonly #byDestination: History;
  readonly #replicas: SimulatedReplica[];
  readonly #brokenRules = new Set<string>();
  /** The replica that has the watch over the outbox, also while it is suspended. */
  watcher: SimulatedReplica | undefined;
  /** Rows that replicas got by claims; a row counts each time. */
  claimedRows = 0;
  #refusals = 0;
  /** When the last probe of each breaker began. */
  readonly #probedAt = new Map<string, number>();
  /** Until when the receiver asked a row to wait that goes back for a retry. */
  readonly #askedToWait = new Map<MessageId, number>();
  /** Rows that the operator discarded. */
  readonly #discarded = new Set<MessageId>();
  /** Deliveries to a destination while it was ill. */
  #metIllness = 0;

  constructor(plan: Plan) {
    this.plan = plan;
    this.random = seeded(plan.seed);
    this.topics = Array.from({ length: plan.destinations }, (_, n) => topicOf(n));
    this.routed = this.topics.slice(0, this.topics.length - plan.unrouted);
    this.limited = this.topics.slice(0, Math.max(1, plan.illnesses.length));
    this.#model = new OutboxModel(plan.replicas);
    this.destinations = new MemoryDestinations(() => this.clock.monotonic());
    this.list = this.routed.slice(0, 3);
    this.#history = new History(() => this.clock.monotonic());
    this.#byDestination = new History(() => this.clock.monotonic());
    this.#replicas = Array.from({ length: plan.replicas }, (_, slot) => new SimulatedReplica(this, slot));
  }

  get clock(): Clock {
    return this.#time.clock;
  }

  get timer(): Timer {
    return this.#time.timer;
  }

  /** The database at the present time. */
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
    const { faults } = this.plan;
    if (row.key !== null) {
      const parked = this.database.parked().find((each) => precedes(each, row));
      if (parked !== undefined) this.breaks(`row ${row.position} overtakes row ${parked.position}, which is parked`);
    }
    // A replica that was cut off may deliver a row that another one has, who knows nothing of the answer.
    const asked = this.#askedToWait.get(id) ?? Number.NEGATIVE_INFINITY;
    if (asked > this.clock.monotonic() && faults.every(({ kind }) => kind === "terminate")) {
      this.breaks(`row ${row.position} comes before the time that the receiver asked for`);
    }
    // A replica that has not heard of the opening yet may begin others.
    if (row.destination !== null && isProbe) void this.#probes(row.destination);
  }

  /** A replica has ended to deliver a row. */
  ended({ id, kind }: Outcome): void {
    if (kind !== "retry") this.#askedToWait.delete(id);
  }

  async #probes(destination: string): Promise<void> {
    const { limits, faults } = this.plan;
    const now = this.clock.monotonic();
    const [state] = (await this.destinations.states()).filter(({ name }) => name === destination);
    if (limits.circuitBreaker === undefined || state?.breaker.state !== "half-open" || faults.length > 0) return;
    const gapMs = now - (this.#probedAt.get(destination) ?? Number.NEGATIVE_INFINITY);
    if (gapMs < limits.circuitBreaker.openMs) this.breaks(`two probes within ${gapMs} ms`);
    this.#probedAt.set(destination, now);
  }

  /**
   * A row comes to the receiver of a destination.
   *
   * @param ms from now
   * @returns whether the receiver takes it, and how long it asks to wait if it does not
   */
  arrives(destination: string, id: MessageId, ms: number): Promise<Answer> {
    const row = this.database.row(id);
    if (row.destination !== destination)
      this.breaks(`row ${row.position} goes to ${destination} instead of ${row.destination}`);
    const ill = this.#illnessOf(id)?.kind;
    if (ill !== undefined) this.#metIllness += 1;
    return new Promise((resolve) => {
      this.timer(ill === "hangs" ? TIMEOUT_MS : ill === "crawls" ? CRAWL_MS : ms, () => {
        const accepted = ill === undefined ? !this.#refuses() : ill === "crawls";
        if (accepted) {
          if (row.messageId === null) this.#history.received(id);
          this.#byDestination.received(id);
        } else this.#refusals += 1;
        const retryAfterMs = accepted || ill === "hangs" ? undefined : this.#asksToWait(id);
        resolve({ accepted, retryAfterMs });
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
    this.#scheduleOperator();
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
    this.#scheduleOperator();
    await Promise.all(this.#replicas.map((replica) => replica.start()));
    const { arrivingMs } = this.plan;
    const endsBy = arrivingMs + BESIDE_ILLNESS_MS + this.#mostRows() * this.#oneTryMs();
    const untouched = () => this.#untouched();
    const left = () => untouched().filter(({ state }) => state !== "sent").length;
    const hasCome = () => this.#haveCome();
    while ((!hasCome() || left() > 0) && this.clock.monotonic() < endsBy) await this.#advance();
    const unfinished = left();
    for (const replica of this.#replicas) replica.kill();
    const held = unfinished === 0 ? [] : [`${unfinished} of ${untouched().length} rows wait for an ill destination`];
    return [...this.#brokenRules, ...held, ...this.#history.violations(), ...this.#byDestination.violations()];
  }

  /** Rows that go to no ill destination, and have no row in front that does, or waits behind such a row. */
  #untouched(): readonly ModelRow[] {
    const touched: ModelRow[] = [];
    const inOrder = this.database.rows.toSorted((a, b) => a.place - b.place || a.position - b.position);
    return inOrder.filter((row) => {
      // A message of a list is expanded while one of its destinations has room.
      const destinations = row.destination === null ? this.list : [row.destination];
      const isIll = destinations.every((each) => this.limited.includes(each));
      const isTouched = isIll || touched.some((one) => precedes(one, row));
      if (isTouched) touched.push(row);
      return !isTouched;
    });
  }

  #haveCome(): boolean {
    return this.database.rows.filter(({ messageId }) => messageId === null).length === this.plan.rows;
  }

  /** With the deliveries of lists. */
  #mostRows(): number {
    const { rows, lists } = this.plan;
    return lists === 0 ? rows : rows * (1 + this.list.length);
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
    const { rows } = this.database;
    if (plan.faults.some(({ kind }) => kind !== "terminate")) {
      for (const each of [this.#history, this.#byDestination]) each.mayRepeat(rows.map(({ id }) => id));
    }
    const unfinished = rows.filter((row) => !isFinished(row)).length;
    const died = rows.filter((row) => row.state === "dead" && !this.#mayDie(row));
    for (const { id, state, isExpanded, messageId } of rows) {
      if (state === "dead" || isExpanded) continue;
      if (messageId === null) this.#history.acknowledged(id);
      this.#byDestination.acknowledged(id);
    }
    const claims = `${this.claimedRows} rows claimed for ${plan.rows} rows and ${this.#refusals} refusals`;
    return [
      ...this.#brokenRules,
      ...(unfinished === 0 ? [] : [`${unfinished} rows are unfinished after ${this.clock.monotonic()} ms; ${claims}`]),
      ...died.map(({ position, lastError }) => `row ${position} is dead: ${lastError}`),
      ...(this.claimedRows <= this.#mostClaimedRows() ? [] : [claims]),
      ...this.#history.violations(),
      ...this.#byDestination.violations(),
    ];
  }

  #scheduleRows(): void {
    const { rows, keys, arrivingMs } = this.plan;
    const times = Array.from({ length: rows }, () => this.draw(arrivingMs + 1)).sort((a, b) => a - b);
    for (const [n, ms] of times.entries()) {
      const key = this.draw(8) === 0 ? null : `key-${this.draw(keys)}`;
      this.timer(ms, () => this.#send(`row-${n}` as MessageId, key));
    }
  }

  /** A sender of a message that a replica has not stored in time gives it to an application. */
  #send(id: MessageId, key: string | null): void {
    const { received } = this.plan;
    const replica = this.#replicas[this.draw(this.#replicas.length)];
    if (received === 0 || replica === undefined || this.random() >= received) return void this.insert(id, key);
    replica.receive(id, key);
    this.timer(PATIENCE_MS, () => this.insert(id, key));
  }

  #schedulePause(): void {
    const { fromMs, lengthMs } = this.plan.pause;
    if (lengthMs === 0) return;
    this.timer(fromMs, () => void this.destinations.pause(FIRST_TOPIC, { by: "ops", reason: "test", forMs: lengthMs }));
  }

  /** An operator retries and discards parked rows, again and again. */
  #scheduleOperator(): void {
    const { parking } = this.plan;
    if (parking === undefined) return;
    this.timer(parking.everyMs, () => {
      const { database } = this;
      for (const row of database.parked()) {
        if (this.random() < parking.discarded) {
          database.discardParked(row, "ops");
          this.#discarded.add(row.id);
        } else database.retryParked(row);
      }
      this.#scheduleOperator();
    });
  }

  /** An operator discarded it, or it used up its attempts at a destination without a route, which parks nothing. */
  #mayDie({ id, topic, attempt }: ModelRow): boolean {
    const isRouted = topic === null || this.routed.includes(topic);
    return this.#discarded.has(id) || (!isRouted && attempt >= (this.plan.parking?.maxAttempts ?? Infinity));
  }

  drawTopic(): string {
    const { lists, destinations } = this.plan;
    const isOfList = lists > 0 && this.list.length > 0 && this.random() < lists;
    return isOfList ? LIST_TOPIC : topicOf(this.draw(destinations));
  }

  /** @returns whether the row is new */
  insert(id: MessageId, key: string | null, topic = this.drawTopic()): boolean {
    if (this.database.rows.some((row) => row.id === id)) return false;
    this.database.insert(id, key, 0, { topic });
    const { place, destination } = this.database.row(id);
    // Rows without a key have no order: each is a key of its own to the history.
    if (destination !== null) {
      this.#history.sent(id, key ?? id, place);
      this.#byDestination.sent(id, `${key ?? id} ${destination}`, place);
    }
    if (this.draw(2) === 0) this.watcher?.hearsOfRows();
    return true;
  }

  /** A replica expands a message that waits for it. */
  expand({ id, deliveries }: Expansion): void {
    const message = this.database.row(id);
    const expected = this.list.length > 1 && !goesToLast(id) ? this.list.slice(0, -1) : this.list;
    const made = deliveries.map(({ destination }) => destination);
    if (made.join() !== expected.join()) this.breaks(`message ${message.position} goes to ${made.join()}`);
    this.database.expand(message);
    for (const each of deliveries) {
      const itsId = deliveryId(id, each.destination);
      this.database.deliver(message, { ...each, id: itsId });
      this.#byDestination.sent(itsId, `${message.key ?? itsId} ${each.destination}`, message.place);
    }
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

  /** What the destination of a row has now. */
  #illnessOf(id: MessageId): Illness | undefined {
    const { destination } = this.database.row(id);
    const illness = this.plan.illnesses.find((_, n) => topicOf(n) === destination);
    if (illness === undefined) return undefined;
    const since = this.clock.monotonic() - illness.fromMs;
    return since >= 0 && since < illness.lengthMs ? illness : undefined;
  }

  #asksToWait(id: MessageId): number | undefined {
    const { share, ms } = this.plan.retryAfter;
    if (share === 0 || this.random() >= share) return undefined;
    this.#askedToWait.set(id, this.clock.monotonic() + ms);
    return ms;
  }

  #refuses(): boolean {
    const { outage, refused } = this.plan;
    const since = this.clock.monotonic() - outage.fromMs;
    return (since >= 0 && since < outage.lengthMs) || this.random() < refused;
  }

  #isDone(): boolean {
    return this.#haveCome() && this.database.rows.every(isFinished);
  }

  /**
   * A row is claimed again for a reason: it was refused, or a row before it was, while two claims at most waited behind that; its destination was ill,
   * and it was given back; or a fault took what a replica held. What a limit does not let through is given back once by each
   * replica, and now and then a claim returns more than may wait.
   */
  #mostClaimedRows(): number {
    const { batchSize, concurrency, faults, replicas, limits } = this.plan;
    const isLimited = limits.rateLimit !== undefined || limits.concurrency !== undefined;
    return (
      (isLimited ? 3 : 1) * this.#mostRows() +
      3 * batchSize * replicas +
      (this.#refusals + this.#metIllness) * 3 * batchSize +
      faults.length * (3 * batchSize + concurrency) * 20
    );
  }

  #longestMs(): number {
    const { arrivingMs, outage, illnesses, refused } = this.plan;
    const rows = this.#mostRows();
    const illMs = Math.max(0, ...illnesses.map(({ fromMs, lengthMs }) => fromMs + lengthMs));
    const { pause, limits } = this.plan;
    const ended = this.#faultsEnd() + outage.fromMs + outage.lengthMs + illMs + pause.fromMs + pause.lengthMs;
    const rateMs = limits.rateLimit === undefined ? 0 : (2 * rows * 1000) / limits.rateLimit.perSecond;
    // After everything that was scheduled has ended, a breaker may open for refusals that chance brings.
    const openings = OPENINGS + 2 * refused * rows;
    const openMs = limits.circuitBreaker === undefined ? 0 : openings * 1.2 * limits.circuitBreaker.maxOpenMs;
    return ended + arrivingMs + BACK_WITHIN_MS + rateMs + openMs + 5 * rows * this.#oneRowMs();
  }

  #oneRowMs(): number {
    const { retryMs, retryAfter, parking } = this.plan;
    return this.#oneTryMs() + Math.max(retryMs, retryAfter.share === 0 ? 0 : retryAfter.ms, parking?.everyMs ?? 0);
  }

  #oneTryMs(): number {
    const { databaseMs, deliveryMs } = this.plan;
    return 6 * databaseMs + 2 * deliveryMs + 2 * POLL_INTERVAL_MS;
  }

  #faultsEnd(): number {
    return Math.max(0, ...this.plan.faults.map(({ atMs, lengthMs }) => atMs + lengthMs + 1));
  }
}

/** What the receiver makes of a row. */
interface Answer {
  readonly accepted: boolean;
  readonly retryAfterMs: number | undefined;
}

/** The condition of the last destination of a list. */
export const goesToLast = (message: MessageId): boolean =>
  Number(message.slice(message.lastIndexOf("-") + 1)) % 4 !== 0;

const isFinished = ({ state }: ModelRow): boolean => state === "sent" || state === "dead";

const STEP_MS = 200;
/** Of senders. */
const PATIENCE_MS = 1000;
const OPENINGS = 20;
const TIMEOUT_MS = 10_000;
const CRAWL_MS = 5000;
