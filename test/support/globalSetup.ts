import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../../src/dev/embeddedPostgres.ts";
import { beginBrokerRun } from "./brokers/run.ts";
import { citusUrl, createCitusTemplate } from "./citus.ts";
import { isAlive } from "./isAlive.ts";
import { throughPooler } from "./pgbouncer.ts";

/** The server of this run, for the teardown, which jest runs in the same process. */
declare global {
  var svcTestPostgres: { readonly server: EmbeddedPostgres; readonly directory: string } | undefined;
}

const PREFIX = "svc-test-postgres-";

/**
 * Gives the tests a PostgreSQL server as `postgres://` URL in `SVC_TEST_POSTGRES`: the server that `SVC_TEST_POSTGRES_URL` names, whose user must be allowed to
 * create databases, or the Citus coordinator that `SVC_TEST_CITUS_URL` names, else an embedded one of this run's own. Brokers start when the first test asks
 * for one.
 */
export default async function globalSetup(): Promise<void> {
  throughPooler();
  await beginBrokerRun();
  const citus = citusUrl();
  if (citus !== undefined) {
    process.env.SVC_TEST_POSTGRES = citus;
    process.env.SVC_TEST_CITUS_TEMPLATE = await createCitusTemplate();
    return;
  }
  const given = process.env.SVC_TEST_POSTGRES_URL;
  if (given !== undefined && given !== "") {
    process.env.SVC_TEST_POSTGRES = given;
    return;
  }
  removeLeftovers();
  const directory = mkdtempSync(path.join(tmpdir(), `${PREFIX}${process.pid}-`));
  // The data is thrown away, so nothing waits for the disk.
  const unsafe = { fsync: "off", synchronous_commit: "off", full_page_writes: "off" };
  const roomy = { max_connections: "300", wal_level: "logical", max_replication_slots: "20", max_wal_senders: "20" };
  const server = await startEmbeddedPostgres({ dataDirectory: directory, settings: { ...unsafe, ...roomy } });
  globalThis.svcTestPostgres = { server, directory };
  process.env.SVC_TEST_POSTGRES = server.url();
}

/** Directories of runs that were interrupted; their servers ended with them. */
function removeLeftovers(): void {
  const ownerOf = (name: string) => Number(name.slice(PREFIX.length).split("-")[0]);
  const leftovers = readdirSync(tmpdir()).filter((name) => name.startsWith(PREFIX) && !isAlive(ownerOf(name)));
  for (const name of leftovers) {
    try {
      rmSync(path.join(tmpdir(), name), { recursive: true, force: true });
    } catch {
      // Another user's: theirs to remove.
    }
  }
}
