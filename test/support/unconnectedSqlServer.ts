import { createSqlServerStore } from "../../src/adapters/stores/sqlserver/index.ts";
import { Secret } from "../../src/model/secret.ts";
import type { Store } from "../../src/ports/store.ts";
import { DEFAULT_NAMES } from "./postgresHarness.ts";
import { ManualClock, recordingLog } from "./recorders.ts";

export const UNCONNECTED = {
  host: "localhost",
  port: 1433,
  instance: undefined,
  database: "svc",
  username: "svc",
  password: new Secret("none"),
  encrypt: true,
  trustServerCertificate: false,
  hostNameInCertificate: undefined,
  multiSubnetFailover: false,
  loginTimeoutMs: 1000,
  applicationName: "svc",
  poolSize: 1,
  connectionTimeoutMs: 1000,
  names: DEFAULT_NAMES,
};

/** A store of SQL Server that has not connected: it does so with its first statement, unless a test takes the pool's place. */
export function unconnectedSqlServerStore(): Store {
  return createSqlServerStore(UNCONNECTED, new ManualClock(), recordingLog().log);
}
