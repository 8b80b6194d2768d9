import { v4 as uuidv4 } from "uuid";
import { BacklogGauges } from "../src/core/delivery/backlogGauges.ts";
import { createDelivery } from "../src/core/delivery/deliver.ts";
import { Poller } from "../src/core/delivery/poller.ts";
import { parseRoutingKeyTemplate } from "../src/core/delivery/template.ts";
import { DestinationGates } from "../src/core/destinations/gates.ts";
import { createDeliveryStage } from "../src/core/transform/transform.ts";
import type { ClaimToken } from "../src/model/rows.ts";
import type { Service } from "../src/ports/runtime.ts";
import type { Store } from "../src/ports/store.ts";
import { Loop } from "../src/runtime/loop.ts";
import { systemTimer } from "../src/time/clock.ts";
import { sleep, TimeoutError, withTimeout } from "../src/time/wait.ts";
import { closer, type RoleContext, type RoleParts } from "./context.ts";
import { needsSharedState } from "./database.ts";
import { deliveryTargets } from "./destinations.ts";

/** Role `poller`: claims outbox rows and delivers them. */
export async function pollerRole(context: RoleContext): Promise<RoleParts> {
  const { config, store, clock, log, metrics, redact, evaluator, wakes } = context;
  const { outbox } = config;
  const targets = await deliveryTargets(context, (destination, isWhole) => poller.answerEnded(destination, isWhole));
  const delivery = createDelivery({
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
    metrics,
    log,
    clock,
    random: Math.random,
  });
  const newToken = () => uuidv4() as ClaimToken;
  const gates = new DestinationGates({
    limits: config.destinations,
    concurrency: outbox.concurrency,
    store: store.destinations,
    schema: store.schema,
    newToken,
    clock,
    timer: systemTimer,
    random: Math.random,
    metrics,
    log,
  });
  const poller: Poller = new Poller({
    store: store.outbox,
    delivery,
    newToken,
    gates,
    onMayClaim: () => claims.wake(),
    destinations: [...new Set(config.routes.map(({ destination }) => destination))],
    batchSize: outbox.batchSize,
    concurrency: outbox.concurrency,
    pollIntervalMs: outbox.pollIntervalMs,
    claimTimeoutMs: outbox.claimTimeoutMs,
    clock,
    random: Math.random,
    metrics,
    log,
    wait: (ms) => sleep(ms),
  });
  const onError = (what: string) => (error: unknown, failures: number, delayMs: number) =>
    log.error({ err: error, failures, delayMs }, what);
  const claims = new Loop({
    name: "outbox-poller",
    pass: () => poller.pass(),
    intervalMs: () => Math.min(poller.nextPassWithinMs, wakes.pollerIntervalMs()),
    staleAfterMs: Math.max(outbox.pollIntervalMs, outbox.capture.reconciliationIntervalMs) + STALE_AFTER_MS,
    onError: onError("claim failed"),
    clock,
  });
  const upkeep = new Loop({
    name: "outbox-upkeep",
    pass: () => poller.tick().then(() => "idle" as const),
    intervalMs: UPKEEP_INTERVAL_MS,
    backoff: { firstMs: 100, longestMs: UPKEEP_INTERVAL_MS },
    staleAfterMs: STALE_AFTER_MS,
    onError: onError("lease upkeep failed"),
    clock,
  });
  const cutOffs = new Loop({
    name: "outbox-cut-offs",
    pass: async () => {
      poller.cutOff();
      return "idle";
    },
    intervalMs: UPKEEP_INTERVAL_MS,
    staleAfterMs: STALE_AFTER_MS,
    onError: onError("leases not looked at"),
    clock,
  });
  const backlog = new BacklogGauges({
    store: store.outbox,
    destinations: Object.keys(config.destinations),
    metrics,
    clock,
  });
  const gauges = new Loop({
    name: "outbox-gauges",
    pass: () => backlog.totals().then(() => "idle" as const),
    intervalMs: outbox.pendingGaugeIntervalMs,
    staleAfterMs: outbox.pendingGaugeIntervalMs + STALE_AFTER_MS,
    onError: onError("backlog not read"),
    clock,
  });
  const destinationGauges = new Loop({
    name: "destination-gauges",
    pass: () => backlog.byDestination().then(() => "idle" as const),
    intervalMs: outbox.pendingGaugeIntervalMs,
    staleAfterMs: outbox.pendingGaugeIntervalMs + STALE_AFTER_MS,
    onError: onError("backlog of the destinations not read"),
    clock,
  });
  const refreshes = new Loop({
    name: "destinations",
    pass: () => gates.refresh((destination) => poller.isSlow(destination)).then(() => "idle" as const),
    intervalMs: REFRESH_INTERVAL_MS,
    backoff: { firstMs: 100, longestMs: REFRESH_INTERVAL_MS },
    staleAfterMs: STALE_AFTER_MS,
    onError: (error, failures) => void gates.refreshFailed(error, failures),
    clock,
  });
  wakes.poller = () => {
    poller.wake();
    claims.wake();
  };
  return {
    workers: [pollerService(poller, gates, { claims, upkeep, cutOffs, gauges, destinationGauges, refreshes }, store)],
    closers: [...targets].map(([name, { destination }]) => closer(`destination ${name}`, () => destination.close())),
    health: [
      {
        name: "outbox-poller",
        decidesReadiness: true,
        async check() {
          await claims.check();
          // Without the table rows with a rate limit would wait for ever, and nobody would hear of an open breaker.
          if (needsSharedState(config)) await refreshes.check();
        },
      },
    ],
  };
}

type LoopName = "claims" | "upkeep" | "cutOffs" | "gauges" | "destinationGauges" | "refreshes";

function pollerService(
  poller: Poller,
  gates: DestinationGates,
  { claims, upkeep, cutOffs, gauges, destinationGauges, refreshes }: Readonly<Record<LoopName, Loop>>,
  store: Store,
): Service {
  return {
    name: "outbox-poller",
    async start() {
      await upkeep.start();
      await cutOffs.start();
      await refreshes.start();
      await claims.start();
      await gauges.start();
      await destinationGauges.start();
      const subscribe = () => store.onOutboxWake(() => claims.wake());
      await withTimeout(WAKE_SETUP_MS, "the subscription to outbox wakes", subscribe).catch((error: unknown) => {
        if (!(error instanceof TimeoutError)) throw error;
      });
    },
    async stop(cutoff) {
      // Leases are kept until the last delivery has ended.
      await Promise.all([claims, poller, gauges, destinationGauges].map((each) => each.stop(cutoff)));
      gates.stop();
      await Promise.all([upkeep, cutOffs, refreshes].map((each) => each.stop(cutoff)));
    },
  };
}

/** A database that hangs must not hold up the start for a wake that polling does without. */
const WAKE_SETUP_MS = 3000;
/** A claim that takes this long is stuck. */
const STALE_AFTER_MS = 30_000;
const UPKEEP_INTERVAL_MS = 1000;
/** A pause is in force in every replica within a second. */
const REFRESH_INTERVAL_MS = 500;
