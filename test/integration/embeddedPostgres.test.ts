import { once } from "node:events";
import { existsSync, mkdtempSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import pg from "pg";
import { type EmbeddedPostgres, serverAccount, startEmbeddedPostgres } from "../../src/dev/embeddedPostgres.ts";
import { eventually } from "../support/eventually.ts";
import { isAlive } from "../support/isAlive.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { builtModule, type RunningProcess, useProcesses } from "../support/processes.ts";

const QUICK = { fsync: "off", shared_buffers: "8MB", max_connections: "20" };
const isRoot = process.getuid?.() === 0;

// Hooks run in the order they are declared: servers end before their directories go, and leaks are looked for last.
const processes = useProcesses();
const directories: string[] = [];
/** A directory that no server has had. */
function newDirectory(): string {
  const made = mkdtempSync(path.join(tmpdir(), `svc-test-postgres-${process.pid}-`));
  directories.push(made);
  return made;
}
/** Of all tests that do not care for its first start, which costs more than all they do. */
const shared = newDirectory();
let directory = shared;
let started: EmbeddedPostgres[] = [];

beforeEach(() => {
  directory = shared;
  started = [];
});

afterEach(async () => {
  await Promise.all(started.map((server) => server.stop("immediate")));
});

afterAll(() => {
  for (const each of directories) rmSync(each, { recursive: true, force: true });
});

failOnLeaks();

async function start(options: { port?: number; dataDirectory?: string } = {}): Promise<EmbeddedPostgres> {
  const server = await startEmbeddedPostgres({ dataDirectory: directory, settings: QUICK, ...options });
  started.push(server);
  return server;
}

async function query(server: EmbeddedPostgres, sql: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: server.url() });
  await client.connect();
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end();
  }
}

/** Puts another content in the place of a file of the data, or nothing, until the end of the scope. */
function replaced(name: string, content?: string): Disposable {
  const file = path.join(directory, "data", name);
  renameSync(file, `${file}.kept`);
  if (content !== undefined) writeFileSync(file, content);
  return { [Symbol.dispose]: () => renameSync(`${file}.kept`, file) };
}

const isGone = (pid: number) => !isAlive(pid);

describe("an embedded server", () => {
  test("keeps its data over a restart and ends its process when it is stopped", async () => {
    const first = await start();
    await query(first, "CREATE TABLE kept AS SELECT 'é'::text AS value");
    await Promise.all([first.stop(), first.stop()]);
    expect(isGone(first.pid)).toBe(true);

    const second = await start();
    expect(await query(second, "SELECT value FROM kept")).toEqual([{ value: "é" }]);
    expect(await query(second, "SHOW server_encoding")).toEqual([{ server_encoding: "UTF8" }]);
    expect(await query(second, "SHOW listen_addresses")).toEqual([{ listen_addresses: "127.0.0.1" }]);
  });

  test("asks for its password, which only the owner of the directory can read", async () => {
    const server = await start();
    const url = new URL(server.url());
    url.password = "wrong";
    const client = new pg.Client({ connectionString: url.href });
    await expect(client.connect()).rejects.toThrow("password authentication failed");
    expect(statSync(path.join(directory, "data", "svc.password")).mode & 0o077).toBe(0);
    expect(JSON.stringify(server)).not.toContain(server.password.reveal());
  });

  test("refuses a directory whose server is in use, and names the process that uses it", async () => {
    const server = await start();
    await expect(start()).rejects.toThrow(`is in use: process ${server.pid} is a PostgreSQL server on it`);
    expect(await query(server, "SELECT 1 AS one")).toEqual([{ one: 1 }]);
  });

  test("goes to one of two processes that start it at the same moment; the error of the other one says so", async () => {
    directory = newDirectory();
    const results = await Promise.allSettled([start(), start()]);
    const failures = results.filter((result) => result.status === "rejected");
    expect(failures.map((failure) => String(failure.reason))).toEqual([expect.stringContaining("is in use")]);
    expect(started).toHaveLength(1);
  });

  test("recovers after its process was killed", async () => {
    const first = await start();
    await query(first, "CREATE TABLE recovered (id int)");
    process.kill(first.pid, "SIGKILL");
    await eventually(() => isGone(first.pid), { label: "the end of the killed server" });
    const second = await start();
    expect(await query(second, "SELECT * FROM recovered")).toEqual([]);
  });

  test("says which port is taken", async () => {
    const other = createServer().listen(0, "127.0.0.1");
    await once(other, "listening");
    const { port } = other.address() as { port: number };
    await expect(start({ port })).rejects.toThrow(`port ${port} is taken`);
    other.close();
    await once(other, "close");
  });

  test.each([
    ["of another PostgreSQL version", "9\n", /initialized by PostgreSQL version 9.*Delete/s],
    ["that holds something else", undefined, /not a valid data directory.*Delete/s],
  ])("refuses a directory %s and says the way out", async (_, version, message) => {
    await (await start()).stop();
    using _file = replaced("PG_VERSION", version);
    await expect(start()).rejects.toThrow(message);
  });

  if (isRoot) {
    test("says which user needs to enter the directory in place of root", async () => {
      directory = newDirectory();
      const dataDirectory = path.join(directory, "postgres");
      const name = serverAccount(undefined)?.name;
      await expect(start({ dataDirectory })).rejects.toThrow(
        `the user ${name}, who must be able to enter ${dataDirectory}`,
      );
      expect(existsSync(path.join(dataDirectory, "data"))).toBe(false);
    });
  }
});

describe("the process that started an embedded server", () => {
  /** Runs a process that starts a server and then ignores SIGINT; gives it and the id of its server. */
  async function owner(): Promise<{ process: RunningProcess; server: number }> {
    const script = `
      import { startEmbeddedPostgres } from ${JSON.stringify(builtModule("src/dev/embeddedPostgres.ts"))};
      process.on("SIGINT", () => console.log("interrupted"));
      const server = await startEmbeddedPostgres(${JSON.stringify({ dataDirectory: directory, settings: QUICK })});
      console.log("server", server.pid);
      setInterval(() => {}, 1000);`;
    const child = processes.node(["--input-type=module", "-e", script], { ownGroup: true });
    const [, server] = await child.waitForLine(/^server (\d+)$/, 20_000);
    return { process: child, server: Number(server) };
  }

  test("gets a Ctrl-C of the terminal alone", async () => {
    const { process: child, server } = await owner();
    process.kill(-child.pid, "SIGINT");
    await child.waitForLine(/^interrupted$/);
    // A server that got the signal too would no longer take this one, or would be gone by the time it has.
    await expect(start()).rejects.toThrow(`is in use: process ${server}`);
    expect(isGone(server)).toBe(false);
    process.kill(child.pid, "SIGKILL");
    await eventually(() => isGone(server), { label: "the end of the server", timeoutMs: 10_000 });
  });

  test("takes the server with it even when it is killed", async () => {
    const { process: child, server } = await owner();
    process.kill(child.pid, "SIGKILL");
    await eventually(() => isGone(server), { label: "the end of the server", timeoutMs: 10_000 });
    expect(existsSync(path.join(directory, "data", "postmaster.pid"))).toBe(false);
  });
});
