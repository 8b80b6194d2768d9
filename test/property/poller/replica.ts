import { createDelivery, type Delivery, type DeliveryTarget } from "../../../src/core/delivery/deliver.ts";
import { type ListEntry, MessageExpansion } from "../../../src/core/delivery/expansion.ts";
import { createRetryPolicy } from "../../../src/core/delivery/failure.ts";
import { Poller } from "../../../src/core/delivery/poller.ts";
import { compileRouting } from "../../../src/core/delivery/routing.ts";
import { OutboxWatch } from "../../../src/core/delivery/watch.ts";
import { DestinationGates } from "../../../src/core/destinations/gates.ts";
import { PublishError } from "../../../src/model/errors.ts";
import type { ClaimToken, MessageId } from "../../../src/model/rows.ts";
import { Loop, type PassResult } from "../../../src/runtime/loop.ts";
import type { Timer } from "../../../src/time/clock.ts";
import { silentLog, silentMetrics } from "../../support/recorders.ts";
import { LIST_TOPIC } from "../store/model.ts";
import { SimulatedOutbox } from "./outbox.ts";
import { goesToLast, type World } from "./world.ts";

const CLAIM_TIMEOUT_MS = 300_000;
/** Of the claims. */
export const POLL_INTERVAL_MS = 100;
const UPKEEP_INTERVAL_MS = 1000;
const REFRESH_INTERVAL_MS = 500;
/** Longest time for a stop in order. */
const SHUTDOWN_MS = 30_000;

/** One process with the role `poller`: the real poller with its loops, routes and outcomes, in a simulated world. */
export class SimulatedReplica {
  readonly outbox: SimulatedOutbox;
  readonly #world: World;
  readonly #poller: Poller;
  readonly #watch: OutboxWatch;
  readonly #claims: Loop;
  readonly #upkeep: Loop;
  readonly #cutOffs: Loop;
  readonly #gates: DestinationGates;
  readonly #refreshes: Loop;
  readonly #receipts = new Set<Promise<void>>();
  #stopping = false;
  #dead = false;
  #hasLeft = false;
  #pausedUntil = 0;

  constructor(world: World, slot: number) {
    this.#world = world;
    this.outbox = new SimulatedOutbox(world, slot, (ms) => this.wait(ms));
    const { clock, plan } = world;
    const newToken = () => `claim-${world.draw(2 ** 48)}` as ClaimToken;
    this.#gates = new DestinationGates({
      limits: Object.fromEntries(
        world.topics.map((topic) => [topic, world.limited.includes(topic) ? plan.limits : {}]),
      ),
      concurrency: plan.concurrency,
      store: this.outbox.destinations,
      newToken,
      clock,
      timer: this.#timer,
      random: () => world.random(),
      metrics: silentMetrics,
      log: silentLog,
    });
    this.#poller = new Poller({
      store: this.outbox,
      delivery: this.#watched(this.#delivery()),
      expansion: new MessageExpansion({
        store: this.outbox,
        listOf: () => this.#list(),
        mayExpand: () => true,
        onEnd: () => this.#wake(),
        wait: (ms) => this.wait(ms),
        clock,
        redact: (text) => text,
        metrics: silentMetrics,
        log: silentLog,
      }),
      newToken,
      gates: this.#gates,
      pollIntervalMs: POLL_INTERVAL_MS,
      onMayClaim: () => this.#wake(),
      destinations: world.topics,
      batchSize: plan.batchSize,
      concurrency: plan.concurrency,
      claimTimeoutMs: CLAIM_TIMEOUT_MS,
      clock,
      random: () => world.random(),
      metrics: silentMetrics,
      log: silentLog,
      wait: (ms) => this.wait(ms),
    });
    this.#watch = new OutboxWatch({
      store: {
        isOutboxWatched: () => world.watcher !== undefined && world.watcher !== this,
        glanceAtOutbox: async (overdueMs) => {
          const glance = await this.outbox.glance(overdueMs);
          if (!glance.isWatched) this.#takeWatch();
          return glance;
        },
      },
      poller: this.#poller,
      pollIntervalMs: () => POLL_INTERVAL_MS,
      fleetFactor: () => plan.fleetFactor,
      beforeClaims: async () => {},
      clock,
    });
    const loop = (name: string, intervalMs: number | (() => number), pass: () => Promise<PassResult>) =>
      new Loop({
        name,
        pass,
        intervalMs,
        backoff: { firstMs: 100, longestMs: UPKEEP_INTERVAL_MS },
        staleAfterMs: Number.POSITIVE_INFINITY,
        onError: () => {},
        clock,
        timer: this.#timer,
        random: () => world.random(),
      });
    this.#claims = loop(
      "claims",
      () => this.#watch.waitMs(),
      () => this.#watch.pass(),
    );
    this.#upkeep = loop("upkeep", UPKEEP_INTERVAL_MS, () => this.#poller.tick().then(() => "idle"));
    this.#refreshes = loop("refreshes", REFRESH_INTERVAL_MS, () =>
      this.#gates.refresh((destination) => this.#poller.share.isSlow(destination)).then(() => "idle"),
    );
    this.#cutOffs = loop("cut-offs", UPKEEP_INTERVAL_MS, async () => {
      this.#poller.claims.cutOff();
      return "idle";
    });
  }

  async start(): Promise<void> {
    this.#takeWatch();
    await Promise.all([this.#upkeep.start(), this.#cutOffs.start(), this.#claims.start(), this.#refreshes.start()]);
  }

  /**
   * Receives a message, as a process with all roles does, unless it stops. It may not be stored, or be stored without an
   * answer.
   */
  receive(id: MessageId, key: string | null): void {
    if (this.#stopping) return;
    const receipt = this.outbox.insert(id, key, this.#poller.claimForReceipt(1)).then(
      () => this.#claims.wake(),
      () => {},
    );
    this.#receipts.add(receipt);
    void receipt.then(() => this.#receipts.delete(receipt));
  }

  /** Whatever it waits for never comes, and the database frees its locks. */
  kill(): void {
    this.#dead = true;
    this.#leaveWatch();
  }

  /** A row was added: a process with the watch may hear of it. */
  hearsOfRows(): void {
    this.#timer(this.#world.draw(this.#world.plan.databaseMs), () => {
      if (!this.#hasLeft) this.#wake();
    });
  }

  #wake(): void {
    this.#watch.endRest();
    this.#claims.wake();
  }

  #takeWatch(): void {
    if (!this.#hasLeft) this.#world.watcher ??= this;
  }

  #leaveWatch(): void {
    this.#hasLeft = true;
    if (this.#world.watcher === this) this.#world.watcher = undefined;
  }

  /** Whatever it waits for comes no earlier than this. @param until by the world's clock */
  pause(until: number): void {
    this.#pausedUntil = Math.max(this.#pausedUntil, until);
  }

  /** Stops it as SIGTERM does. It acts no more when this resolves. */
  async stop(): Promise<void> {
    this.#stopping = true;
    const cutoff = new AbortController();
    // Its servers end first, some of its consumers at the same time as its poller.
    if (this.#world.random() < 0.5) await Promise.all(this.#receipts);
    this.#leaveWatch();
    const cancel = this.#timer(SHUTDOWN_MS, () => cutoff.abort());
    await Promise.all([this.#claims.stop(cutoff.signal), this.#poller.stop(cutoff.signal)]);
    await Promise.all([this.#upkeep, this.#cutOffs, this.#refreshes].map((each) => each.stop(cutoff.signal)));
    await Promise.all([...this.#receipts, this.#gates.stop()]);
    cancel();
    this.outbox.close();
  }

  /** Lets virtual time pass, in ms: everything that the process does advances by this or by {@link #timer}. */
  wait(ms: number): Promise<void> {
    return new Promise((resolve) => this.#timer(ms, resolve));
  }

  readonly #timer: Timer = (ms, callback) => {
    const { clock, timer } = this.#world;
    let cancel = (): void => {};
    const due = () => {
      if (this.#dead) return;
      const left = this.#pausedUntil - clock.monotonic();
      if (left > 0) cancel = timer(left, due);
      else callback();
    };
    cancel = timer(ms, due);
    return () => cancel();
  };

  #watched({ deliver, ...others }: Delivery): Delivery {
    return {
      ...others,
      deliver: async (row, signal, isProbe = false) => {
        this.#world.begins(row, isProbe);
        const result = await deliver(row, signal, isProbe);
        this.#world.ended(result.outcome);
        return result;
      },
    };
  }

  #delivery(): Delivery {
    const { clock, plan, topics, routed } = this.#world;
    const retry = { baseDelayMs: plan.retryMs, factor: 1, jitter: 0 };
    const targetOf = (topic: string): DeliveryTarget => ({
      kind: "simulated",
      destination: {
        publish: ({ deliveryId }, signal) => this.#publish(topic, deliveryId, signal),
        close: async () => {},
      },
      headers: {},
      address: null,
      routingKey: null,
      transform: null,
      retryPolicy: createRetryPolicy(retry, plan.retryMs),
      maxAttempts: undefined,
    });
    const route = { transform: null, onExhausted: "park", routingKey: null, routingKeyMissing: "" } as const;
    const routes = routed.map((topic) => ({ ...route, topicPattern: topic, destination: topic }));
    const { list } = this.#world;
    return createDelivery({
      routes: [...routes, ...list.map((destination) => ({ ...route, topicPattern: LIST_TOPIC, destination }))],
      routing: compileRouting([...routes, { topicPattern: LIST_TOPIC, destinations: list.map((name) => ({ name })) }]),
      targets: new Map(topics.map((topic) => [topic, targetOf(topic)])),
      redact: (text) => text,
      history: "off",
      replica: "simulated",
      clock,
      random: () => 0,
      metrics: silentMetrics,
      log: silentLog,
    });
  }

  /** Some messages do not go to the last one, which takes time to find out. */
  #list(): readonly ListEntry[] {
    const { plan, list } = this.#world;
    const holds = async (_: string, { id }: { readonly id: MessageId }) => {
      await this.wait(this.#world.draw(plan.deliveryMs));
      return goesToLast(id);
    };
    return list.map((destination, n) => {
      const isConditional = n > 0 && n === list.length - 1;
      return { destination, condition: isConditional ? { onError: "Fail", holds } : null };
    });
  }

  async #publish(topic: string, id: MessageId, signal: AbortSignal): Promise<void> {
    const aborted = new Promise<never>((_, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    });
    await Promise.race([aborted, this.#send(topic, id)]);
  }

  async #send(topic: string, id: MessageId): Promise<void> {
    const { plan } = this.#world;
    // On the wire it is in nobody's hands: it arrives also when its sender has ended meanwhile.
    const { accepted, retryAfterMs } = await this.#world.arrives(topic, id, this.#world.draw(plan.deliveryMs));
    await this.wait(this.#world.draw(plan.deliveryMs));
    if (!accepted) throw new PublishError("status_5xx", "refused", { retryAfterMs });
  }
}
