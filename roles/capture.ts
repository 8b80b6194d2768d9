import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import path from "node:path";
import type { Config } from "../src/config/types.ts";
import { Capture } from "../src/core/capture/capture.ts";
import { parsedJson } from "../src/model/text.ts";
import type { ChangeLog, PositionStore } from "../src/ports/capture.ts";
import { APPLICATION_NAME } from "../src/setup/stores.ts";
import { systemTimer } from "../src/time/clock.ts";
import { Backoff, type BackoffRange } from "../src/time/wait.ts";
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
    positions: positionFile(settings),
    wake: () => wakes.wake("poller"),
    backoff: new Backoff(Math.random, BACKOFF),
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

/** The last position, in `<identity>.json` of the state directory. */
function positionFile({ stateDirectory, identity }: Config["outbox"]["capture"]): PositionStore {
  const file = path.join(stateDirectory, `${identity}.json`);
  return {
    async read() {
      await mkdir(stateDirectory, { recursive: true });
      const text = await readFile(file, "utf8").catch((error: NodeJS.ErrnoException) => {
        if (error.code === "ENOENT") return "";
        throw error;
      });
      const { position } = Object(parsedJson(text)) as { readonly position?: unknown };
      return typeof position === "string" ? position : null;
    },
    async save(position) {
      const text = `${JSON.stringify({ position, savedAt: new Date().toISOString() })}\n`;
      // A process that is killed meanwhile leaves the former file whole.
      await writeFile(`${file}.tmp`, text, { mode: 0o600 });
      await rename(`${file}.tmp`, file);
    },
  };
}

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
  const idColumn = database.columnMapping.outbox.id;
  if (target.type === "postgresql") {
    const { endpointsOf } = await import("../src/adapters/stores/postgres/connections.ts");
    const { postgresLogical } = await import("../src/adapters/capture/postgresLogical.ts");
    const hosts = [{ host: hostname, port: connection.port ?? POSTGRES_PORT }];
    return postgresLogical({
      server: { ...common, endpoints: endpointsOf({ ...target, hosts }) },
      names: { schema, table, idColumn, publication, slot },
      clock,
      metrics,
      log,
    });
  }
  const { sqlServerCdc } = await import("../src/adapters/capture/sqlServerCdc.ts");
  const { port, encrypt, trustServerCertificate } = connection;
  const server = {
    ...common,
    host: hostname,
    port,
    instance: hostname === target.host ? target.instance : undefined,
    encrypt,
    trustServerCertificate,
    hostNameInCertificate: target.hostNameInCertificate,
    multiSubnetFailover: target.multiSubnetFailover,
    connectionTimeoutMs: database.connectionTimeoutMs,
  };
  return sqlServerCdc({ server, table: { schema, name: table, idColumn }, clock, log });
}

const POSTGRES_PORT = 5432;
