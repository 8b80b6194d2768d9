import { v4 as uuidv4 } from "uuid";
import { destinationKindOf } from "../src/adapters/kinds.ts";
import { targetsOf } from "../src/config/routes.ts";
import type { DestinationConfig } from "../src/config/types.ts";
import { createBacklogGauges } from "../src/core/delivery/backlogGauges.ts";
import { compileCloudEvents } from "../src/core/delivery/cloudEvents.ts";
import { createDelivery, type DeliveryTarget } from "../src/core/delivery/deliver.ts";
import { MessageExpansion } from "../src/core/delivery/expansion.ts";
import { createRetryPolicy } from "../src/core/delivery/failure.ts";
import { Poller } from "../src/core/delivery/poller.ts";
import { Relabel } from "../src/core/delivery/relabel.ts";
import { compileRoutes, compileRouting } from "../src/core/delivery/routing.ts";
import { compileHeaderValue, parseRoutingKeyTemplate } from "../src/core/delivery/template.ts";
import { OutboxWatch } from "../src/core/delivery/watch.ts";
import { DestinationGates } from "../src/core/destinations/gates.ts";
import { createCondition, createDeliveryStage } from "../src/core/transform/transform.ts";
import type { ClaimToken } from "../src/model/rows.ts";
import type { HealthComponent, Service } from "../src/ports/runtime.ts";
import { REPLICA } from "../src/runtime/log.ts";
import { Loop, type LoopOptions, logFailures } from "../src/runtime/loop.ts";
import { addressingOf } from "../src/setup/destinations.ts";
import { needsSharedState } from "../src/setup/stores.ts";
import { namedDestinations } from "../src/setup/tracing.ts";
import { systemTimer } from "../src/time/clock.ts";
import { atMost, sleep, TimeoutError, withTimeout } from "../src/time/wait.ts";
import { closer, type RoleContext, type RoleParts } from "./context.ts";
import { REFRESH_MS } from "./sharedStates.ts";

/** Role `poller`: claims outbox rows and delivers them. @param pollIntervalMs the wait between claims without a wake */
export async function pollerRole(
  context: RoleContext,
  pollIntervalMs = () => context.config.outbox.pollIntervalMs,
): Promise<RoleParts> {
  const { config, store, control, states, clock, log, metrics, redact, evaluator, tracing } = context;
  const { wakes, receipts, fleet } = context;
  const { outbox } = config;
  const startedAt = clock.monotonic();
  const targets = await deliveryTargets(context);
  const tools = { clock, random: Math.random, metrics, log };
  const newToken = () => uuidv4() as ClaimToken;
  const routing = compileRouting(config.routes);
  const routes = config.routes.map((route, i) =>
    targetsOf(route, i).map(({ destination, routingKeyTemplate, transform, when, keyPath, ...target }) => ({
      topicPattern: route.topicPattern,
      destination,
      routingKey: routingKeyTemplate === undefined ? null : parseRoutingKeyTemplate(routingKeyTemplate),
      routingKeyMissing: target.routingKeyMissingFieldDefault,
      onExhausted: target.onExhausted,
      maxAttempts: target.maxAttempts,
      transform:
        transform === undefined
          ? null
          : tracing.deliveryStage(createDeliveryStage(transform, evaluator, keyPath), "route"),
      condition: when === undefined ? null : createCondition(when, evaluator, keyPath),
    })),
  );
  const lists = compileRoutes(
    config.routes.map(({ topicPattern, destinations }, i) => ({ topicPattern, list: destinations && routes[i] })),
  );
  const delivery = tracing.delivery(
    createDelivery({
      ...tools,
      routing,
      routes: routes.flat(),
      targets,
      redact,
      history: outbox.history,
      replica: REPLICA,
    }),
    namedDestinations(config.destinations),
  );
  const expansion = new MessageExpansion({
    store: store.outbox,
    listOf: (topic) => lists.match(topic)?.list,
    mayExpand: () => knowLists(fleet, clock.monotonic() - startedAt),
    onEnd: () => wakes.wake("poller"),
    wait: sleep,
    clock,
    redact,
    metrics,
    log,
  });
  const gates = new DestinationGates({
    ...tools,
    limits: config.destinations,
    concurrency: outbox.concurrency,
    store: control.destinations,
    newToken,
    timer: systemTimer,
  });
  const poller = new Poller({
    ...tools,
    store: store.outbox,
    delivery,
    expansion,
    newToken,
    gates,
    onMayClaim: () => wakes.wake("poller"),
    // Also those without a route: a row may name its destination.
    destinations: Object.keys(config.destinations),
    batchSize: outbox.batchSize,
    concurrency: outbox.concurrency,
    pollIntervalMs: outbox.pollIntervalMs,
    claimTimeoutMs: outbox.claimTimeoutMs,
    wait: sleep,
  });
  const fleetFactor = () => fleetFactorOf(fleet.others.pollers);
  const watch = new OutboxWatch({
    ...tools,
    store,
    poller,
    pollIntervalMs,
    // While it rests it reads them less often. Without an answer the last known state applies.
    beforeClaims: async () => {
      if (states.areStale) await atMost(REFRESH_MS, states.next());
    },
    fleetFactor,
  });
  const passes = new Loop({
    name: "outbox-poller",
    pass: () => watch.pass(),
    intervalMs: () => watch.waitMs(),
    maxRestMs: MAX_REST_MS,
    staleAfterMs: Math.max(outbox.pollIntervalMs, outbox.capture.reconciliationIntervalMs) + STALE_AFTER_MS,
    onError: logFailures(log, "claim failed"),
    clock,
  });
  /** A loop of passes at an interval, which is also the longest wait after a failed pass. @param failure its log message */
  const every = (name: string, ms: number, failure: string, pass: LoopOptions["pass"], intervalMs = () => ms) =>
    new Loop({
      name,
      pass,
      intervalMs,
      backoff: { firstMs: 100, longestMs: ms },
      staleAfterMs: ms + STALE_AFTER_MS,
      onError: logFailures(log, failure),
      clock,
    });
  const readGauges = createBacklogGauges({
    outbox: store.outbox,
    operations: control.operations,
    lists: store.operations,
    gates,
    destinations: Object.keys(config.destinations),
    metrics,
    clock,
  });
  const gaugesMs = outbox.pendingGaugeIntervalMs;
  /** The watcher's are never older than the interval. */
  const restingGaugesMs = () => gaugesMs * (watch.mayRest ? fleetFactor() : 1);
  const gauges = every("outbox-gauges", gaugesMs, "reading the backlog failed", readGauges, restingGaugesMs);
  let reclaimedAt = Number.NEGATIVE_INFINITY;
  const upkeep = every("outbox-upkeep", UPKEEP_MS, "lease upkeep failed", async () => {
    const isDue = !watch.mayRest || clock.monotonic() - reclaimedAt > RESTING_RECLAIM_MS * fleetFactor();
    await poller.tick(isDue);
    if (isDue) reclaimedAt = clock.monotonic();
  });
  const cutOffs = every("outbox-cut-offs", UPKEEP_MS, "cutting off expired leases failed", async () =>
    poller.claims.cutOff(),
  );
  const relabel = new Relabel({
    store: store.outbox,
    hash: delivery.routing.hash,
    others: () => fleet.others.routes,
    clock,
    log,
  });
  let namesAt = Number.NEGATIVE_INFINITY;
  /** The poller that watches does it; another one is still due if it watches later. */
  const labels = every("outbox-labels", LABELS_MS, "relabelling rows of former routes failed", async () => {
    if (watch.mayRest) return "idle";
    const result = await relabel.pass();
    if (result === "again" || !relabel.isAlone || clock.monotonic() < namesAt) return result;
    namesAt = clock.monotonic() + NAMES_MS;
    const names = await store.outbox.destinationsWaiting();
    poller.claimUnknown(names.filter((name) => config.destinations[name] === undefined));
    return "idle";
  });
  wakes.listen("poller", () => {
    watch.endRest();
    passes.wake();
  });
  receipts.claim = (rows) => {
    // Receipts of several replicas do not see each other's rows before they are committed.
    const isOnlyPoller = fleet.others.routes !== undefined && fleet.others.pollers === 0;
    return states.areKnown && isOnlyPoller ? poller.claimForReceipt(rows) : undefined;
  };
  let leaveStates = (): void => {};
  const service: Service = {
    name: "outbox-poller",
    async start() {
      const isSlow = (destination: string) => poller.share.isSlow(destination);
      leaveStates = states.join({ gates, isSlow, isIdle: () => watch.isIdle });
      for (const loop of [upkeep, cutOffs, passes, gauges, labels]) await loop.start();
      // The claims of a capturing process follow the log: they look at the outbox less often.
      const subscribe = () => store.onOutboxWake(() => wakes.wake("poller"), !outbox.capture.enabled);
      await withTimeout(WAKE_SETUP_MS, "the subscription to outbox wakes", subscribe).catch((error: unknown) => {
        if (!(error instanceof TimeoutError)) throw error;
      });
    },
    async stop(cutoff) {
      // Leases are kept until the last delivery has ended.
      const stopped = [passes, poller, gauges, labels].map((each) => each.stop(cutoff));
      await Promise.all([store.leaveOutboxWatch(), ...stopped]);
      await Promise.all([upkeep, cutOffs].map((each) => each.stop(cutoff)));
      leaveStates();
      await gates.stop();
    },
  };
  const health: HealthComponent = {
    name: "outbox-poller",
    decidesReadiness: true,
    async check() {
      await passes.check();
      await store.outbox.check();
      // Without the table, rows with a rate limit wait for ever, and open breakers are not shared. The trouble of what
      // cells share is not that of a cell.
      if (control === store && needsSharedState(config)) await states.loop.check();
    },
  };
  return {
    workers: [service],
    closers: [...targets].map(([name, { destination }]) => closer(`destination ${name}`, () => destination.close())),
    health: [health],
  };
}

/** Every configured destination, compiled, by name. Only the client libraries of the configured kinds are loaded. */
async function deliveryTargets(context: RoleContext): Promise<ReadonlyMap<string, DeliveryTarget>> {
  const { config, evaluator, tracing, clock, metrics, secrets, log } = context;
  const { http, outbox } = config;
  const eventSources = new Set(
    Object.keys(config.sources).filter((name) => config.sources[name]?.cloudEvents === true),
  );
  const targets = Object.entries(config.destinations).map(async ([name, entry]) => {
    const { kind, headers, transform, cloudEvents, retry, maxAttempts } = entry;
    const kindOf = destinationKindOf(entry);
    const destination = await kindOf.create(entry, {
      log: log.child({ destination: name }),
      clock,
      random: Math.random,
      metrics,
      secrets,
      http,
      concurrency: outbox.concurrency,
    });
    const target: DeliveryTarget = {
      kind,
      destination: tracing.destination(destination),
      ...addressingOf(entry),
      headers: kindOf.hasHeaderTemplates ? compiled(headers) : headers,
      transform:
        transform === undefined
          ? null
          : tracing.deliveryStage(createDeliveryStage(transform, evaluator, `destinations.${name}`), "destination"),
      cloudEvents: cloudEvents && compileCloudEvents(cloudEvents, kindOf.cloudEvents, eventSources),
      retryPolicy: createRetryPolicy(retry, outbox.retryBaseDelayMs),
      maxAttempts,
    };
    return [name, target] as const;
  });
  return new Map(await Promise.all(targets));
}

function compiled(headers: DestinationConfig["headers"]): DeliveryTarget["headers"] {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, compileHeaderValue(value)]));
}

/** Up to 32 that rest cost the database no more than a small fleet. @param others pollers of other processes */
export function fleetFactorOf(others: number): number {
  return Math.min(Math.max(1, (others + 1) / SMALL_FLEET), MOST_FLEET_FACTOR);
}

/**
 * Whether every replica alive knows messages with several destinations.
 *
 * @param upMs since the start: heartbeats that could not be stored for a minute are not waited for
 */
export function knowLists({ others }: Pick<RoleContext["fleet"], "others">, upMs: number): boolean {
  return others.withoutLists === undefined ? upMs > UNSEEN_MS : others.withoutLists === 0;
}

const UNSEEN_MS = 60_000;
/** A database that hangs must not delay the start: polling works without wakes. */
const WAKE_SETUP_MS = 3000;
/** A claim of twenty rows costs hardly less than one of a hundred, so claims that find few rest in between. */
const MAX_REST_MS = 50;
/** A claim that takes this long is stuck. */
const STALE_AFTER_MS = 30_000;
const UPKEEP_MS = 1000;
/** Reclaims here too: a resting poller leaves them to the watching poller, unless the latter hangs. */
const RESTING_RECLAIM_MS = 4500;
/** Pollers that may glance once a second each. */
const SMALL_FLEET = 8;
/** A poller forgets within eight seconds that another one watches. */
const MOST_FLEET_FACTOR = 4;
/** Most passes look at the last heartbeat, and no further. */
const LABELS_MS = 1000;
/** A thousand names take the database 50 ms. */
const NAMES_MS = 5000;
