import { v4 as uuidv4 } from "uuid";
import { createBacklogGauges } from "../src/core/delivery/backlogGauges.ts";
import { createDelivery } from "../src/core/delivery/deliver.ts";
import { Poller } from "../src/core/delivery/poller.ts";
import { parseRoutingKeyTemplate } from "../src/core/delivery/template.ts";
import { OutboxWatch } from "../src/core/delivery/watch.ts";
import { DestinationGates } from "../src/core/destinations/gates.ts";
import { createDeliveryStage } from "../src/core/transform/transform.ts";
import type { ClaimToken } from "../src/model/rows.ts";
import type { HealthComponent, Service } from "../src/ports/runtime.ts";
import { REPLICA } from "../src/runtime/log.ts";
import { Loop, type LoopOptions, logFailures } from "../src/runtime/loop.ts";
import { systemTimer } from "../src/time/clock.ts";
import { atMost, sleep, TimeoutError, withTimeout } from "../src/time/wait.ts";
import { closer, type RoleContext, type RoleParts } from "./context.ts";
import { needsSharedState } from "./database.ts";
import { deliveryTargets } from "./destinations.ts";

/** Role `poller`: claims outbox rows and delivers them. */
export async function pollerRole(context: RoleContext): Promise<RoleParts> {
  const { config, store, clock, log, metrics, redact, evaluator, wakes, fleet } = context;
  const { outbox } = config;
  const targets = await deliveryTargets(context, (destination, isWhole) => poller.answerEnded(destination, isWhole));
  const tools = { clock, random: Math.random, metrics, log };
  const newToken = () => uuidv4() as ClaimToken;
  const delivery = createDelivery({
    ...tools,
    routes: config.routes.map((route, i) => ({
      topicPattern: route.topicPattern,
      destination: route.destination,
      routingKey: route.routingKeyTemplate === undefined ? null : parseRoutingKeyTemplate(route.routingKeyTemplate),
      routingKeyMissing: route.routingKeyMissingFieldDefault,
      onExhausted: route.onExhausted,
      transform: route.transform === undefined ? null : createDeliveryStage(route.transform, evaluator, `routes[${i}]`),
    })),
    targets,
    redact,
    history: outbox.history,
    replica: REPLICA,
  });
  const gates = new DestinationGates({
    ...tools,
    limits: config.destinations,
    concurrency: outbox.concurrency,
    store: store.destinations,
    schema: store.schema,
    newToken,
    timer: systemTimer,
  });
  const poller: Poller = new Poller({
    ...tools,
    store: store.outbox,
    delivery,
    newToken,
    gates,
    onMayClaim: () => watch.wake(),
    // Also those without a route: a row may name its destination.
    destinations: Object.keys(config.destinations),
    batchSize: outbox.batchSize,
    concurrency: outbox.concurrency,
    pollIntervalMs: outbox.pollIntervalMs,
    claimTimeoutMs: outbox.claimTimeoutMs,
    wait: (ms) => sleep(ms),
  });
  let refreshedAt = Number.NEGATIVE_INFINITY;
  let onRefreshed: (() => void)[] = [];
  const refresh = async () => {
    try {
      await gates.refresh((destination) => poller.isSlow(destination));
      refreshedAt = clock.monotonic();
    } finally {
      for (const resolve of onRefreshed) resolve();
      onRefreshed = [];
    }
  };
  /** Lets the loop read what the replicas share about destinations: two reads at once could end in the wrong order. */
  const nextRefresh = () =>
    new Promise<void>((resolve) => {
      onRefreshed.push(resolve);
      refreshes.wake();
    });
  const knowsDestinations = () => clock.monotonic() - refreshedAt <= STALE_STATE_MS;
  /** Up to 32 that rest cost the database no more than a small fleet. */
  const fleetFactor = () => Math.min(Math.max(1, (fleet.others.pollers + 1) / SMALL_FLEET), MOST_FLEET_FACTOR);
  const watch: OutboxWatch = new OutboxWatch({
    ...tools,
    store,
    poller,
    pollIntervalMs: () => wakes.pollerIntervalMs(),
    // While it rests it reads them less often. Without an answer the last known state applies.
    beforeClaims: async () => {
      if (!knowsDestinations()) await atMost(REFRESH_MS, nextRefresh());
    },
    knowsDestinations,
    fleetFactor,
    onWake: () => claims.wake(),
  });
  const claims = new Loop({
    name: "outbox-poller",
    pass: () => watch.pass(),
    intervalMs: () => watch.waitMs(),
    maxRestMs: MAX_REST_MS,
    staleAfterMs: Math.max(outbox.pollIntervalMs, outbox.capture.reconciliationIntervalMs) + STALE_AFTER_MS,
    onError: logFailures(log, "claim failed"),
    clock,
  });
  /** A loop of passes at an interval. @param retryMs longest wait after a failed pass @param failure its log message */
  const every = (
    name: string,
    [intervalMs, retryMs]: readonly [number | (() => number), number],
    failure: string | OnError,
    pass: () => Promise<void> | void,
  ) =>
    new Loop({
      name,
      pass: async () => {
        await pass();
        return "idle";
      },
      intervalMs,
      backoff: { firstMs: 100, longestMs: retryMs },
      staleAfterMs: (typeof intervalMs === "number" ? intervalMs : intervalMs()) + STALE_AFTER_MS,
      onError: typeof failure === "string" ? logFailures(log, failure) : failure,
      clock,
    });
  const backlog = createBacklogGauges({
    store: store.outbox,
    destinations: Object.keys(config.destinations),
    metrics,
    clock,
  });
  /** The watcher's are never older than the interval. */
  const gaugesMs = () => outbox.pendingGaugeIntervalMs * (watch.mayRest ? fleetFactor() : 1);
  const gaugeTimes = [gaugesMs, GAUGES_RETRY_MS] as const;
  let reclaimedAt = Number.NEGATIVE_INFINITY;
  const upkeep = every("outbox-upkeep", UPKEEP_TIMES, "lease upkeep failed", async () => {
    const isDue = !watch.mayRest || clock.monotonic() - reclaimedAt > RESTING_RECLAIM_MS * fleetFactor();
    await poller.tick(isDue);
    if (isDue) reclaimedAt = clock.monotonic();
  });
  const cutOffs = every("outbox-cut-offs", UPKEEP_TIMES, "cutting off expired leases failed", () => poller.cutOff());
  const gauges = every("outbox-gauges", gaugeTimes, "reading the backlog failed", () => backlog.totals());
  const destinationGauges = every("destination-gauges", gaugeTimes, "reading the backlog by destination failed", () =>
    backlog.byDestination(),
  );
  const onRefreshError: OnError = (error, failures) => void gates.refreshFailed(error, failures);
  const refreshMs = () => (watch.isIdle ? IDLE_REFRESH_MS * fleetFactor() : REFRESH_MS);
  const refreshes = every("destinations", [refreshMs, REFRESH_MS], onRefreshError, refresh);
  wakes.hasPoller = true;
  wakes.poller = () => {
    poller.wake();
    watch.wake();
  };
  wakes.receive = (rows, insert) => watch.receive(rows, insert);
  const service: Service = {
    name: "outbox-poller",
    async start() {
      for (const loop of [upkeep, cutOffs, refreshes, claims, gauges, destinationGauges]) await loop.start();
      // The claims of a capturing process follow the log: they look at the outbox less often.
      const subscribe = () => store.onOutboxWake(() => watch.wake(), !outbox.capture.enabled);
      await withTimeout(WAKE_SETUP_MS, "the subscription to outbox wakes", subscribe).catch((error: unknown) => {
        if (!(error instanceof TimeoutError)) throw error;
      });
    },
    async stop(cutoff) {
      watch.stop();
      // Leases are kept until the last delivery has ended.
      const stopped = [claims, poller, gauges, destinationGauges].map((each) => each.stop(cutoff));
      await Promise.all([store.leaveOutboxWatch(), ...stopped]);
      await Promise.all([upkeep, cutOffs, refreshes].map((each) => each.stop(cutoff)));
      await gates.stop();
    },
  };
  const health: HealthComponent = {
    name: "outbox-poller",
    decidesReadiness: true,
    async check() {
      await claims.check();
      await store.outbox.check();
      // Without the table, rows with a rate limit wait for ever, and open breakers are not shared.
      if (needsSharedState(config)) await refreshes.check();
    },
  };
  return {
    workers: [service],
    closers: [...targets].map(([name, { destination }]) => closer(`destination ${name}`, () => destination.close())),
    health: [health],
  };
}

type OnError = LoopOptions["onError"];

/** A database that hangs must not delay the start: polling works without wakes. */
const WAKE_SETUP_MS = 3000;
/** A claim of twenty rows costs hardly less than one of a hundred, so claims that find few rest in between. */
const MAX_REST_MS = 50;
/** A claim that takes this long is stuck. */
const STALE_AFTER_MS = 30_000;
/** Interval and longest retry wait, in ms, here and below. */
const UPKEEP_TIMES = [1000, 1000] as const;
/** Here too: a resting poller leaves that to the one that watches, unless that one hangs. */
const RESTING_RECLAIM_MS = 4500;
/** Pollers that may glance once a second each. */
const SMALL_FLEET = 8;
/** A poller forgets within eight seconds that another one watches. */
const MOST_FLEET_FACTOR = 4;
/** A pause is in force in every replica within a second. */
const REFRESH_MS = 500;
/** Without a delivery it is in force with the next claim. */
const IDLE_REFRESH_MS = 5000;
const STALE_STATE_MS = 750;
const GAUGES_RETRY_MS = 10_000;
