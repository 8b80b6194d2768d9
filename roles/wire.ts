import { DESTINATION_KINDS, destinationKindOf } from "../src/adapters/kinds.ts";
import type { Config } from "../src/config/types.ts";
import { Health } from "../src/core/health.ts";
import { createRedactor } from "../src/core/redaction/redact.ts";
import { BodyBudget } from "../src/http/exchange.ts";
import { processRoutes } from "../src/http/process/routes.ts";
import type { HttpRoute } from "../src/http/routes.ts";
import { createApps, HttpServer } from "../src/http/server.ts";
import { ConfigError } from "../src/model/errors.ts";
import type { Role } from "../src/model/roles.ts";
import type { Log } from "../src/ports/runtime.ts";
import { createMetrics } from "../src/runtime/metrics.ts";
import { OPEN_METRICS, wantsOpenMetrics } from "../src/runtime/openMetrics.ts";
import { startInOrder, stopPhases } from "../src/runtime/shutdown.ts";
import { metricsPushes } from "../src/setup/metricsPush.ts";
import type { StartProcess } from "../src/setup/process.ts";
import { openTracing } from "../src/setup/tracing.ts";
import { openTransforms } from "../src/setup/transforms.ts";
import { systemClock, systemTimer } from "../src/time/clock.ts";
import { adminRole } from "./admin.ts";
import type { RoleParts } from "./context.ts";
import { openDatabase, openInstallation, type SharedParts } from "./data.ts";
import { ingestRole } from "./ingest.ts";

/** The composition root: the only place that puts a process together. */

export const startProcess: StartProcess = async (options) => {
  const { config, log, stopping } = options;
  const roles = new Set(options.roles);
  await refuseWhatCannotRun(config, roles);

  const transforms = openTransforms(config, roles, log);
  const tracing = await openTracing(config, options.version, log);
  const registry = createMetrics({
    version: options.version,
    roles: options.roles,
    destinationKinds: Object.keys(DESTINATION_KINDS),
    cells: config.database.cells.map(({ name }) => name),
    destinations: Object.keys(config.destinations),
    deliveryBuckets: config.metrics.deliveryBuckets,
  });
  const pushes = metricsPushes(options, registry);
  const shared: SharedParts = {
    configText: options.configText,
    clock: systemClock,
    secrets: options.secrets,
    redact: createRedactor(options.secrets),
    evaluator: transforms,
    tracing,
    bodies: new BodyBudget(config.server.maxBufferedBodyBytes, systemClock),
  };
  const open = config.database.cells.length === 0 ? openDatabase : openInstallation;
  const data = await open(options, shared, registry);
  const { context } = data;
  const parts: RoleParts[] = [...data.parts];
  if (roles.has("ingest")) parts.push(await ingestRole(context, data.ingestInto));
  if (roles.has("admin")) parts.push(adminRole(context));

  const health = new Health(() => [...data.health(), ...parts.flatMap((part) => part.health ?? [])], {
    log,
    clock: systemClock,
    metrics: registry.metrics,
  });
  const routes = processRoutes(
    parts.flatMap((part) => part.routes ?? []),
    {
      health,
      metrics: async (accept) =>
        config.metrics.openMetrics && wantsOpenMetrics(accept)
          ? { type: OPEN_METRICS, text: await registry.openMetrics() }
          : { text: await registry.text() },
      document: { version: options.version, server: config.server, maxBodyBytes: config.inbox.maxBodyBytes },
    },
  );
  const servers = httpServers(config, routes, log);
  const waiters = parts.flatMap((part) => part.waiters ?? []);
  const workers = [health.watch(systemTimer), ...data.workers, ...parts.flatMap((part) => part.workers ?? [])];
  const closers = [
    ...tracing.services,
    ...pushes,
    ...data.closers,
    transforms,
    ...parts.flatMap((part) => part.closers ?? []),
  ];

  await startInOrder([...data.pools, ...closers, ...workers, ...waiters, ...servers], START_UNDO_MS, stopping, { log });
  log.info({ port: servers[0]?.port, version: options.version }, "ready");

  return () =>
    stopPhases(
      [
        { name: "http", services: [...servers, ...waiters], timeoutMs: HTTP_DRAIN_MS },
        { name: "workers", services: workers, timeoutMs: config.outbox.shutdownTimeoutMs },
        { name: "publishers", services: closers, timeoutMs: CLOSE_MS },
        { name: "database", services: data.pools, timeoutMs: CLOSE_MS },
      ],
      { log },
    );
};

const HTTP_DRAIN_MS = 5000;
const CLOSE_MS = 5000;
const START_UNDO_MS = 5000;

async function refuseWhatCannotRun(config: Config, roles: ReadonlySet<Role>): Promise<void> {
  if (!roles.has("poller")) return;
  const checks = Object.entries(config.destinations).map(([name, entry]) =>
    destinationKindOf(entry).checkAtStart?.(`destinations.${name}`, entry, config.http),
  );
  const problems = (await Promise.all(checks)).flatMap((found) => found ?? []);
  if (problems.length > 0) throw new ConfigError(problems);
}

function httpServers(config: Config, routes: readonly HttpRoute[], log: Log): readonly HttpServer[] {
  const { httpPort, managementPort, host, managementHost = host, maxConnections, requestTimeoutMs } = config.server;
  const hasManagementPort = managementPort !== undefined;
  const apps = createApps({ routes, hasManagementPort, maxBodyBytes: config.inbox.maxBodyBytes, log });
  const limits = { maxConnections, requestTimeoutMs, log };
  const dataKeys = { portKey: "server.httpPort", hostKey: "server.host" };
  const data = new HttpServer({ name: "http", port: httpPort, host, ...dataKeys, listener: apps.data, ...limits });
  if (managementPort === undefined || apps.management === null) return [data];
  const management = new HttpServer({
    name: "http-management",
    port: managementPort,
    host: managementHost,
    portKey: "server.managementPort",
    hostKey: managementHost === host ? "server.host" : "server.managementHost",
    listener: apps.management,
    ...limits,
  });
  return [data, management];
}
