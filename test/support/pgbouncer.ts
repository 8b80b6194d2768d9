import { chmodSync, chownSync, writeFileSync } from "node:fs";
import path from "node:path";
import pg from "pg";
import { serverAccount } from "../../src/dev/embeddedPostgres.ts";
import { launchProgram } from "./brokers/launch.ts";
import { lastingPorts } from "./brokers/ports.ts";
import { findPgbouncer } from "./brokers/programs.ts";
import { runFolder, serverFolder } from "./brokers/runFolder.ts";
import { once } from "./brokers/shared.ts";
import type { Launch, OwnServer } from "./brokers/types.ts";

/** The address of a pooler; user, password and databases are the server's behind it. */
export interface PoolerAddress {
  readonly host: string;
  readonly port: number;
}

/** The PostgreSQL server behind a pooler, and the user who logs in. */
export interface PooledServer {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
}

export interface PgbouncerOptions {
  /** When a client gives its server connection back (default `transaction`). */
  readonly poolMode?: "transaction" | "session";
}

/** How many connections to the server a PgBouncer of the tests keeps for one database: fewer than a service has to PgBouncer. */
export const SERVER_CONNECTIONS = 4;

const HOST = "127.0.0.1";
/** What a developer can do about it. */
export const HOW_TO_GET = "no PgBouncer can be had: run test/services/install.sh, which installs it";

/**
 * Whether the services of this run reach PostgreSQL through PgBouncer, because `SVC_TEST_POOLER` says so.
 *
 * @throws Error when it names any other pooler
 */
export function throughPooler(): boolean {
  const pooler = process.env.SVC_TEST_POOLER ?? "";
  if (pooler !== "" && pooler !== "pgbouncer") {
    throw new Error(`SVC_TEST_POOLER names ${pooler}; expected is pgbouncer, or nothing`);
  }
  return pooler !== "";
}

/** The PgBouncer of the run in front of the run's PostgreSQL server, for every database of it, started when the first test asks. Never stop it. */
export async function sharedPgbouncer(server: PooledServer): Promise<PoolerAddress> {
  return await once("pgbouncer", async () => (await launchPgbouncer(server, true)).address);
}

/** A PgBouncer of the test's own in front of a server. */
export async function startPgbouncer(
  server: PooledServer,
  options: PgbouncerOptions = {},
): Promise<OwnServer & PoolerAddress> {
  const { address, ...launch } = await launchPgbouncer(server, false, options);
  return { ...address, ...launch };
}

async function launchPgbouncer(
  server: PooledServer,
  shared: boolean,
  options: PgbouncerOptions = {},
): Promise<Launch<PoolerAddress>> {
  const program = findPgbouncer();
  if (program === undefined) throw new Error(`${HOW_TO_GET}. Declare the tests with describeWithPgbouncer.`);
  const [port = 0] = await lastingPorts(1);
  const folder = serverFolder("pgbouncer");
  const configFile = path.join(folder, "pgbouncer.ini");
  const userFile = path.join(folder, "users.txt");
  writeFileSync(configFile, pgbouncerConfiguration({ server, port, userFile, ...options }), { mode: 0o600 });
  writeFileSync(userFile, `${quoted(server.user)} ${quoted(server.password)}\n`, { mode: 0o600 });
  // PgBouncer refuses to run as root, and the user that it becomes reads both files again.
  const account = serverAccount(undefined);
  if (account !== undefined) {
    for (const file of [configFile, userFile]) chownSync(file, account.uid, account.gid);
    chmodSync(runFolder(), 0o711);
  }
  return await launchProgram({
    name: "PgBouncer",
    program,
    args: [...(account === undefined ? [] : ["-u", account.name]), configFile],
    env: {},
    folder,
    shared,
    address: { host: HOST, port },
    answers: () => answers({ ...server, host: HOST, port }),
  });
}

/** The text of a configuration file: defaults, but for the mode and for few server connections, so that they are shared. */
function pgbouncerConfiguration(options: {
  readonly server: PooledServer;
  readonly port: number;
  readonly userFile: string;
  readonly poolMode?: PgbouncerOptions["poolMode"];
}): string {
  const { server, port, userFile, poolMode = "transaction" } = options;
  return `
[databases]
* = host=${server.host} port=${server.port}

[pgbouncer]
listen_addr = ${HOST}
listen_port = ${port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = ${userFile}
pool_mode = ${poolMode}
default_pool_size = ${SERVER_CONNECTIONS}
max_client_conn = 1000
`;
}

/** A word of the file of users. */
function quoted(text: string): string {
  return `"${text.replaceAll('"', '""')}"`;
}

/** Connects as a client would, through to the server. */
async function answers(server: PooledServer): Promise<void> {
  const client = new pg.Client({ ...server, database: "postgres", application_name: "svc-test" });
  await client.connect();
  try {
    await client.query("SELECT 1");
  } finally {
    await client.end();
  }
}
