import { createInterface } from "node:readline";
import type { RoleContext } from "../../roles/context.ts";
import { fleetFactorOf, pollerRole } from "../../roles/poller.ts";
import { SharedStates } from "../../roles/sharedStates.ts";
import { loadConfig } from "../../src/config/load.ts";
import { secretsOf } from "../../src/config/mask.ts";
import { Heartbeat, Tally } from "../../src/core/operations/heartbeat.ts";
import { createRedactor, KnownSecrets } from "../../src/core/redaction/redact.ts";
import { BodyBudget } from "../../src/http/exchange.ts";
import type { Service } from "../../src/ports/runtime.ts";
import type { OutboxStore } from "../../src/ports/store.ts";
import { createMetrics } from "../../src/runtime/metrics.ts";
import { createStore, prepareStore } from "../../src/setup/stores.ts";
import { type Clock, systemClock, systemTimer } from "../../src/time/clock.ts";
import { sharedController } from "../../src/time/wait.ts";
import { silentLog } from "../support/recorders.ts";

/**
 * A fleet of pollers in one process, each with a store of its own: to the database they are as many replicas. Arguments: configuration file, number of
 * pollers. Prints 0 once they run; then for each input line what they have claimed and settled so far: {@link FleetCounts} as JSON.
 */
export interface FleetCounts {
  /** Claims that returned rows. */
  claims: number;
  claimedRows: number;
  /** Rows given back without a delivery. */
  releasedRows: number;
  settlements: number;
  settledRows: number;
}

const [file = "", pollers = "1"] = process.argv.slice(2);
const counts: FleetCounts = { claims: 0, claimedRows: 0, releasedRows: 0, settlements: 0, settledRows: 0 };

/** The outbox of a store, whose claims and settlements are counted. */
function counted(outbox: OutboxStore): OutboxStore {
  return {
    get hasQueues() {
      return outbox.hasQueues;
    },
    async claim(request) {
      const result = await outbox.claim(request);
      counts.claims += result.rows.length > 0 ? 1 : 0;
      counts.claimedRows += result.rows.length;
      return result;
    },
    async settle(outcomes) {
      counts.settlements += 1;
      counts.settledRows += outcomes.length;
      counts.releasedRows += outcomes.filter(({ kind }) => kind === "release").length;
      return await outbox.settle(outcomes);
    },
    glance: (overdueMs) => outbox.glance(overdueMs),
    renew: (tokens, lease) => outbox.renew(tokens, lease),
    reclaim: (limit, claimTimeoutMs) => outbox.reclaim(limit, claimTimeoutMs),
    check: () => outbox.check(),
    clock: () => outbox.clock(),
    backlog: (request) => outbox.backlog(request),
    relabel: (keep, after, limit) => outbox.relabel(keep, after, limit),
    destinationsWaiting: () => outbox.destinationsWaiting(),
  };
}

/** Each poller keeps the beats of its own clock, as processes that started at different times do. */
function clockOf(n: number): Clock {
  const aheadMs = (n * 1000) / Number(pollers);
  return { now: () => systemClock.now(), monotonic: () => systemClock.monotonic() + aheadMs };
}

async function startPoller(name: string, clock: Clock): Promise<readonly Service[]> {
  const loaded = loadConfig({ env: {}, file });
  const { config } = loaded;
  const store = await createStore(config, silentLog, clock);
  await prepareStore(store, config, new Set(["poller"]), silentLog, new AbortController().signal);
  const secrets = new KnownSecrets(secretsOf(config));
  const redact = createRedactor(secrets, 2000);
  const tally = new Tally(clock);
  const { metrics } = createMetrics({ version: "bench", processMetrics: false });
  const fleet: RoleContext["fleet"] = { others: { pollers: 0, relays: 0 } };
  const fleetFactor = () => fleetFactorOf(fleet.others.pollers);
  const states = new SharedStates({ store: store.destinations, fleetFactor, clock });
  const context: RoleContext = {
    config,
    configText: "",
    store: {
      ...store,
      outbox: {
        ...counted(store.outbox),
        expand: (messages) => store.outbox.expand(messages),
        messagesToExpand: (ids) => store.outbox.messagesToExpand(ids),
      },
    },
    control: store,
    states,
    clock,
    log: silentLog,
    metrics,
    tally,
    secrets,
    redact,
    evaluator: { evaluate: () => Promise.reject(new Error("no transform is configured")) },
    bodies: new BodyBudget(config.server.maxBufferedBodyBytes, clock),
    fleet,
    wakes: { relay: () => {}, poller: () => {} },
    receipts: { relay: undefined, claim: () => undefined },
  };
  const { workers = [], closers = [] } = await pollerRole(context);
  const process = { name, version: "bench", roles: ["poller"] as const };
  const heartbeat = new Heartbeat({
    store: store.operations,
    process,
    tally,
    onBeat(others) {
      context.fleet.others = others;
    },
    clock,
    timer: systemTimer,
    log: silentLog,
  });
  const database: Service = { name: "database", start: async () => {}, stop: () => store.close() };
  for (const worker of [states.loop, ...workers, heartbeat]) await worker.start();
  return [...workers, ...closers, states.loop, heartbeat, database];
}

const running: (readonly Service[])[] = [];
for (let n = 0; n < Number(pollers); n += 1) running.push(await startPoller(`bench-${n}`, clockOf(n)));
process.stdout.write("0\n");
createInterface({ input: process.stdin }).on("line", () => process.stdout.write(`${JSON.stringify(counts)}\n`));
process.on("SIGTERM", async () => {
  const cutoff = sharedController().signal;
  await Promise.all(
    running.map(async (services) => {
      for (const service of services) await service.stop(cutoff);
    }),
  );
  process.exit(0);
});
