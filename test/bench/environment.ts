import { type ChildProcess, execFile, spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import pg from "pg";
import { createPostgresStore } from "../../src/adapters/stores/postgres/index.ts";
import { type EmbeddedPostgres, freePort, startEmbeddedPostgres } from "../../src/dev/embeddedPostgres.ts";
import {
  DESTINATION_COLUMNS,
  HISTORY_COLUMNS,
  INBOX_COLUMNS,
  JOURNAL_COLUMNS,
  OUTBOX_COLUMNS,
  operationsTables,
} from "../../src/model/rows.ts";
import { Secret } from "../../src/model/secret.ts";
import type { Store } from "../../src/ports/store.ts";
import { systemClock } from "../../src/time/clock.ts";
import { silentLog } from "../support/recorders.ts";

/** A database, and programs of this repository, for the benchmarks. Everything that was started is ended by `close`. */
export interface Environment {
  readonly sql: pg.Client;
  /** `postgres://` URL of the database, with the password. */
  readonly url: string;
  readonly store: Store;
  /**
   * Starts `svc` with these roles and settings (SVC_ variables without the prefix, and LOG_LEVEL), waits until it is ready.
   *
   * @param sections of the configuration, instead of the sections that all benchmarks have
   */
  svc(
    roles: readonly string[],
    settings: Readonly<Record<string, string | number>>,
    sections?: Readonly<Record<string, object>>,
  ): Promise<Program>;
  /** Starts another program of this folder, or one by its full path, and waits for its first line: a port, or 0. */
  program(file: string, args: readonly (string | number)[]): Promise<Program>;
  close(): Promise<void>;
}

export interface Program {
  readonly pid: number;
  /** The port that the program told, or that `svc` was given. */
  readonly port: number;
  /** Waits for the next line that the program prints. */
  line(): Promise<string>;
  /** Writes one line to the program's input. */
  tell(line: string): void;
  stop(): Promise<void>;
}

const HERE = path.dirname(fileURLToPath(import.meta.url));
const BUILD = path.resolve(HERE, "../..");
/** As the image starts Node.js; so do all programs of a benchmark, and `npm run bench` itself. */
const IMAGE_OPTION = "--max-semi-space-size=32";

/**
 * A PostgreSQL server with its default settings, durable (`fsync` on).
 *
 * @param checkout whose build runs as `svc`, with its own tables; this one by default. `store` fits the tables of this one
 */
export async function openEnvironment(checkout?: string): Promise<Environment> {
  const svc = path.join(checkout === undefined ? BUILD : path.join(checkout, "dist"), "roles/svc.js");
  const directory = await mkdtemp(path.join(tmpdir(), "svc-bench-"));
  // As root the server runs as another user, who has to pass through.
  await chmod(directory, 0o711);
  const server = await startEmbeddedPostgres({ dataDirectory: path.join(directory, "postgres") });
  const sql = new pg.Client({ connectionString: server.url() });
  await sql.connect();
  const store = openStore(server);
  const programs: Program[] = [];
  const configuration = async (sections: Readonly<Record<string, object>> = {}, port = 8080) => {
    const file = path.join(directory, `svc-${port}.yml`);
    await writeFile(file, JSON.stringify({ ...svcConfig(server, port), ...sections }));
    return file;
  };
  if (checkout === undefined) {
    await store.schema.migrate();
    await store.schema.checkColumns();
  } else {
    await promisify(execFile)(process.execPath, [svc, "migrate", "--config", await configuration()]);
  }
  return {
    url: server.url(),
    sql,
    store,
    async svc(roles, overrides, sections) {
      const port = await freePort();
      const config = await configuration(sections, port);
      const variables = Object.entries(overrides).map(([name, value]) => [
        name === "LOG_LEVEL" ? name : `SVC_${name}`,
        String(value),
      ]);
      const env = { ...process.env, LOG_LEVEL: process.env.LOG_LEVEL ?? "info", ...Object.fromEntries(variables) };
      // For example BENCH_NODE_OPTIONS="--cpu-prof --cpu-prof-dir=/tmp/profiles".
      const nodeOptions = process.env.BENCH_NODE_OPTIONS?.split(" ").filter((option) => option !== "") ?? [];
      const program = startProgram([...nodeOptions, svc, ...roles, "--config", config], env, port, unreadLines);
      programs.push(program);
      await until(async () => (await fetch(`http://127.0.0.1:${port}/health`)).ok);
      return program;
    },
    async program(file, args) {
      const program = startProgram([path.resolve(HERE, file), ...args.map(String)], process.env, 0, lineReader);
      programs.push(program);
      const port = Number(await program.line());
      return { ...program, port };
    },
    async close() {
      for (const program of programs) await program.stop();
      await store.close();
      await sql.end();
      await server.stop();
      await rm(directory, { recursive: true });
    },
  };
}

function openStore(server: EmbeddedPostgres): Store {
  const names = {
    schema: undefined,
    inboxTable: "inbox",
    outboxTable: "outbox",
    destinationTable: "outbox_destination",
    historyTable: "outbox_history",
    operations: operationsTables("outbox_"),
    inbox: INBOX_COLUMNS,
    outbox: OUTBOX_COLUMNS,
    destination: DESTINATION_COLUMNS,
    history: HISTORY_COLUMNS,
    journal: JOURNAL_COLUMNS,
  };
  const options = {
    endpoints: [{ host: server.host, port: server.port, tls: false as const }],
    database: server.database,
    username: server.user,
    password: new Secret(server.password.reveal()),
    primaryOnly: false,
    applicationName: "svc-bench",
    poolSize: 4,
    connectionTimeoutMs: 10_000,
    names,
    routes: [
      { topicPattern: "excluded.**", destination: "excluded" },
      { topicPattern: "**", destination: "receiver" },
    ],
  };
  return createPostgresStore(options, systemClock, silentLog);
}

function svcConfig(server: EmbeddedPostgres, port: number): object {
  return {
    server: { httpPort: port },
    database: {
      url: `jdbc:postgresql://${server.host}:${server.port}/${server.database}?sslmode=disable`,
      username: server.user,
      password: server.password.reveal(),
      migrate: false,
    },
    sources: {
      bench: { path: "/bench", idempotencyKeyPath: "$.id", aggregateIdPath: "$.key", topic: "bench" },
    },
    destinations: { receiver: { baseUrl: "http://127.0.0.1:1" } },
    routes: [{ topicPattern: "**", destination: "receiver" }],
  };
}

function startProgram(
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  port: number,
  read: (child: ChildProcess) => Program["line"],
): Program {
  const child = spawn(process.execPath, [IMAGE_OPTION, ...args], { env, stdio: ["pipe", "pipe", "inherit"] });
  const line = read(child);
  const exited = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  return {
    pid: child.pid ?? 0,
    port,
    line,
    tell: (line) => child.stdin?.write(`${line}\n`),
    async stop() {
      child.kill("SIGTERM");
      const timer = setTimeout(() => child.kill("SIGKILL"), 10_000);
      await exited;
      clearTimeout(timer);
    },
  };
}

/** Takes what `svc` logs off its hands, unread: to split its lines took a share of the processor that is measured. */
function unreadLines(child: ChildProcess): () => Promise<string> {
  child.stdout?.resume();
  return async () => {
    throw new Error("the log of svc is not read: ask the programs of this folder for lines only");
  };
}

function lineReader(child: ChildProcess): () => Promise<string> {
  const ready: string[] = [];
  const waiting: ((line: string) => void)[] = [];
  let rest = "";
  child.stdout?.setEncoding("utf8").on("data", (chunk: string) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const waiter = waiting.shift();
      if (waiter === undefined) ready.push(line);
      else waiter(line);
    }
  });
  return async () => ready.shift() ?? (await new Promise<string>((resolve) => waiting.push(resolve)));
}

/** Waits until `check` gives true; what it throws counts as not yet. At most a minute. */
export async function until(check: () => Promise<boolean>, intervalMs = 20): Promise<void> {
  const deadline = performance.now() + 60_000;
  while (!(await check().catch(() => false))) {
    if (performance.now() > deadline) throw new Error("the condition was not met within a minute");
    await new Promise((resolve) => setTimeout(resolve, intervalMs));
  }
}

/** How many requests the program `receiver.js` has had. */
export async function receivedBy(receiver: Program): Promise<number> {
  receiver.tell("");
  return Number(await receiver.line());
}

/** Resident memory of a process in MiB; undefined if the system does not report it. */
export function residentMiB(pid: number): number | undefined {
  try {
    const kib = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
    return kib === undefined ? undefined : Number(kib) / 1024;
  } catch {
    return undefined;
  }
}

/** Processor time of a process so far, in ms, by the scheduler's own account: ticks miss, or hit, what wakes up with them. */
export function processorMs(pid: number): number {
  const threads = readdirSync(`/proc/${pid}/task`);
  // The first field is the time on a processor in ns.
  const times = threads.map((id) => Number(readFileSync(`/proc/${pid}/task/${id}/schedstat`, "utf8").split(" ")[0]));
  return times.reduce((sum, ns) => sum + ns, 0) / 1e6;
}
