import { randomUUID } from "node:crypto";
import pg from "pg";
import { eventually } from "./eventually.ts";

/** Databases on a cluster of Citus: the same on each of its nodes, with one schema that is sharded as a whole. */

/** The schema of the service's tables. Citus keeps all tables of a schema on one node. */
export const CITUS_SCHEMA = "cell";

/** The coordinator that `SVC_TEST_CITUS_URL` names, whose user is a superuser without a password between the nodes. */
export function citusUrl(): string | undefined {
  const url = process.env.SVC_TEST_CITUS_URL;
  return url === "" ? undefined : url;
}

/** Makes the database that all databases of a run are copies of. @returns its name */
export async function createCitusTemplate(): Promise<string> {
  const name = `svc_citus_${randomUUID().replaceAll("-", "")}`;
  const [coordinator, ...workers] = await nodes();
  if (coordinator === undefined || workers.length === 0)
    throw new Error("SVC_TEST_CITUS_URL: no worker is known there");
  await onEachNode(async (node) => {
    await run(node, [`CREATE DATABASE ${name}`]);
    await run(at(node, name), ["CREATE EXTENSION citus"]);
  });
  const address = ({ hostname, port }: URL) => `'${hostname}', ${port}`;
  await run(at(coordinator, name), [
    `SELECT citus_set_coordinator_host(${address(coordinator)})`,
    ...workers.map((worker) => `SELECT citus_add_node(${address(worker)})`),
    "SET citus.enable_schema_based_sharding = on",
    `CREATE SCHEMA ${CITUS_SCHEMA}`,
  ]);
  return name;
}

/** Makes a database with the settings that the documentation asks for. @param template whose connections end for good */
export async function createCitusDatabase(name: string, template: string): Promise<void> {
  const settings = {
    search_path: CITUS_SCHEMA,
    "citus.propagate_set_commands": "local",
    "citus.enable_schema_based_sharding": "on",
  };
  await onEachNode(async (node) => {
    // A maintenance process of Citus is connected to each database; if nobody may connect it does not come back.
    await run(node, [
      `ALTER DATABASE ${template} ALLOW_CONNECTIONS false`,
      `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '${template}'`,
      `CREATE DATABASE ${name} TEMPLATE ${template} STRATEGY FILE_COPY`,
      ...Object.entries(settings).map(([key, value]) => `ALTER DATABASE ${name} SET ${key} = ${value}`),
    ]);
  });
}

export async function dropCitusDatabase(name: string): Promise<void> {
  // The nodes connect to each other again at once, unless nobody may.
  await onEachNode(async (node) => {
    const rows = await run(node, [`SELECT FROM pg_database WHERE datname = '${name}'`]);
    if (rows.length === 0) return;
    await run(node, [`ALTER DATABASE ${name} ALLOW_CONNECTIONS false`]);
    // A client that was connecting meanwhile is still let in.
    await eventually(() => run(node, [`DROP DATABASE ${name} WITH (FORCE)`]));
  });
}

let known: Promise<readonly URL[]> | undefined;

/** The coordinator first. */
function nodes(): Promise<readonly URL[]> {
  known ??= readNodes();
  return known;
}

async function readNodes(): Promise<readonly URL[]> {
  const url = new URL(String(citusUrl()));
  const rows = await run(url, ["SELECT nodename, nodeport FROM pg_dist_node WHERE isactive ORDER BY groupid"]);
  return (rows as { nodename: string; nodeport: number }[]).map(({ nodename, nodeport }) => {
    const node = new URL(url);
    node.hostname = nodename;
    node.port = String(nodeport);
    return node;
  });
}

async function onEachNode(work: (node: URL) => Promise<unknown>): Promise<void> {
  await Promise.all((await nodes()).map(work));
}

function at(node: URL, database: string): URL {
  const url = new URL(node);
  url.pathname = `/${database}`;
  return url;
}

/** Runs statements one after another. @returns the rows of the last one */
async function run(node: URL, statements: readonly string[]): Promise<readonly object[]> {
  const client = new pg.Client({ connectionString: node.href, application_name: "svc-test" });
  await client.connect();
  try {
    let rows: readonly object[] = [];
    for (const statement of statements) ({ rows } = await client.query(statement));
    return rows;
  } finally {
    await client.end();
  }
}
