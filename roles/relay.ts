import { Relay } from "../src/core/delivery/relay.ts";
import { topicParts } from "../src/core/delivery/template.ts";
import { Loop, logFailures } from "../src/runtime/loop.ts";
import type { RoleContext, RoleParts } from "./context.ts";

/** Role `relay`: copies pending push rows into the outbox. */
export function relayRole({ config, store, clock, log, metrics, wakes }: RoleContext): RoleParts {
  const { relay: settings } = config.inbox;
  if (!settings.enabled) return {};
  const pushed = Object.entries(config.sources).filter(([, source]) => source.consumption === "push");
  const onRelayed = () => {
    wakes.poller();
    // A poller here claims them, and calls the others when they are too many.
    if (!wakes.hasPoller) store.announceOutbox();
  };
  const relay = new Relay({
    store: store.inbox,
    topics: Object.fromEntries(pushed.map(([name, { topic }]) => [name, topicParts(topic, name)])),
    ownKeySources: pushed.filter(([, { keyScope }]) => keyScope === "source").map(([name]) => name),
    batchSize: settings.batchSize,
    maxAttempts: settings.maxAttempts,
    onRelayed,
    clock,
    metrics,
    log,
  });
  const loop = new Loop({
    name: "inbox-relay",
    pass: () => relay.pass(),
    intervalMs: settings.pollIntervalMs,
    maxRestMs: MAX_REST_MS,
    staleAfterMs: settings.pollIntervalMs + STALE_AFTER_MS,
    onError: logFailures(log, "relay pass failed"),
    clock,
  });
  const gaugeIntervalMs = Math.max(settings.pendingGaugeIntervalMs, settings.pollIntervalMs);
  const gauges = new Loop({
    name: "inbox-gauges",
    async pass() {
      await relay.gauge();
      return "idle";
    },
    intervalMs: gaugeIntervalMs,
    staleAfterMs: gaugeIntervalMs + STALE_AFTER_MS,
    onError: logFailures(log, "reading the inbox gauges failed"),
    clock,
  });
  wakes.relay = () => loop.wake();
  wakes.relayed = (rows, unclaimed) => {
    metrics.inboxMessages("forwarded", rows);
    if (unclaimed > 0) onRelayed();
  };
  return {
    workers: [loop, gauges],
    health: [{ name: "inbox-relay", decidesReadiness: true, check: () => loop.check() }],
  };
}

/** A pass over 300 rows costs hardly twice as much as one over 30, so passes rest in between. */
const MAX_REST_MS = 50;
/** A pass that takes this long is stuck. */
const STALE_AFTER_MS = 30_000;
