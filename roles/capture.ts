import { Capture } from "../src/core/capture/capture.ts";
import type { ChangeLog } from "../src/ports/capture.ts";
import { captureState } from "../src/runtime/captureState.ts";
import { APPLICATION_NAME } from "../src/setup/stores.ts";
import { Backoff, type BackoffRange } from "../src/time/backoff.ts";
import { systemTimer } from "../src/time/clock.ts";
import { sleep } from "../src/time/wait.ts";
import type { RoleContext, RoleParts } from "./context.ts";

/**
 * Role `capture`: wakes the poller of this process when the database's log shows an outbox insert.
 *
 * @returns also the poller's wait between claims without a wake, which is longer while the capture wakes it
 */
export async function captureRole(context: RoleContext): Promise<RoleParts & { pollIntervalMs: () => number }> {
  const { config, clock, log, metrics, wakes } = context;
  const { pollIntervalMs, capture: settings } = config.outbox;
  const capture = new Capture({
    changes: await changeLog(context),
    state: captureState({ directory: settings.stateDirectory, identity: settings.identity, log }),
    onInsert: () => wakes.poller(),
    // The poller's present wait may be wrong now.
    onChange: () => wakes.poller(),
    backoff: new Backoff(Math.random, BACKOFF),
    wait: sleep,
    timer: systemTimer,
    clock,
    metrics,
    log,
  });
  return {
    workers: [capture],
    health: [capture],
    pollIntervalMs: () =>
      capture.capturing
        ? settings.reconciliationIntervalMs
        : Math.min(pollIntervalMs, settings.reconciliationIntervalMs),
  };
}

/** Delivery does not depend on it. */
const BACKOFF: BackoffRange = { firstMs: 500, longestMs: 30_000 };

/** The change log of the configured database. Loads only its own driver. */
async function changeLog({ config, clock, metrics, log }: RoleContext): Promise<ChangeLog> {
  const { database } = config;
  const { target } = database;
  const { schema, slot, publication, connection } = config.outbox.capture;
  const { hostname, username, password } = connection;
  const common = {
    database: connection.database,
    username,
    password,
    applicationName: target.applicationName ?? APPLICATION_NAME,
  };
  const table = database.outboxTableName;
  if (target.type === "postgresql") {
    const { endpointsOf } = await import("../src/adapters/stores/postgres/endpoints.ts");
    const { postgresLogical } = await import("../src/adapters/capture/postgres-logical/index.ts");
    const hosts = [{ host: hostname, port: connection.port ?? POSTGRES_PORT }];
    return postgresLogical({
      server: { ...common, endpoints: endpointsOf({ ...target, hosts }) },
      names: { schema, table, idColumn: database.columnMapping.outbox.id, publication, slot },
      clock,
      metrics,
      log,
    });
  }
  const { sqlServerCdc } = await import("../src/adapters/capture/sqlserver-cdc/index.ts");
  const { port, encrypt, trustServerCertificate } = connection;
  return sqlServerCdc({
    ...common,
    host: hostname,
    port,
    instance: hostname === target.host ? target.instance : undefined,
    encrypt,
    trustServerCertificate,
    hostNameInCertificate: target.hostNameInCertificate,
    multiSubnetFailover: target.multiSubnetFailover,
    connectionTimeoutMs: database.connectionTimeoutMs,
    table: { schema, name: table, idColumn: database.columnMapping.outbox.id },
    clock,
    log,
    wait: sleep,
  });
}

const POSTGRES_PORT = 5432;
