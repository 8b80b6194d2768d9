import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { Agent, request as httpRequest, type IncomingHttpHeaders } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, afterEach, expect } from "@jest/globals";
import { createDatabase, type TestDatabase } from "./databases.ts";
import { eventually } from "./eventually.ts";
import { freePort } from "./ports.ts";
import { type Processes, type RunningProcess, useProcesses } from "./processes.ts";
import { Receiver } from "./receiver.ts";

/** A configuration or a part of one, as it stands in the file. */
export type ConfigTree = { readonly [key: string]: unknown };

/** What a service needs to know of its database. */
export type DatabaseAddress = Pick<TestDatabase, "jdbcUrl" | "user" | "password">;

/** The keys of `database` for it. */
export function databaseConfig({ jdbcUrl, user, password }: DatabaseAddress): ConfigTree {
  const type = jdbcUrl.split(":")[1];
  return { ...(type === "postgresql" ? {} : { type }), url: jdbcUrl, username: user, password };
}

export interface ServiceOptions {
  readonly database: DatabaseAddress;
  /** Everything but `server` and `database`, which are added; it may set further keys of both. */
  readonly config: ConfigTree;
  /** The data port; a free one when absent. */
  readonly port?: number;
  /** Roles of the command line; none means every role the configuration enables. */
  readonly roles?: readonly string[];
  /** Variables of the process, such as `SVC_` ones. */
  readonly env?: Readonly<Record<string, string>>;
}

export interface HttpAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  /** The body as JSON. @throws SyntaxError when it is none */
  json(): unknown;
}

export interface PostOptions {
  /** Default `/inbox/orders`. */
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface Readiness {
  readonly status: number;
  /** `healthy` or `unhealthy`. */
  readonly verdict: string;
  /** Component name to `up` or `down`. */
  readonly components: Readonly<Record<string, string>>;
}

/** One running `svc`. */
export interface Service {
  readonly process: RunningProcess;
  /** The data port. */
  readonly port: number;
  /** Sends a text or bytes unchanged, an object as JSON. @throws the connection's error when there is no answer */
  post(body: string | Buffer | object, options?: PostOptions): Promise<HttpAnswer>;
  /** @param port default: the data port */
  get(path: string, port?: number): Promise<HttpAnswer>;
  /** `GET /health/ready` of the data port. */
  readiness(): Promise<Readiness>;
  /** The sum of a metric's samples over its labels; 0 when there is none. */
  metric(name: string): Promise<number>;
  /** Resolves when it has logged that it is ready. @throws Error with its last lines when it does not come up */
  ready(): Promise<void>;
  /** SIGTERM; resolves with its end. */
  stop(): RunningProcess["exited"];
  /** SIGKILL; resolves when it is gone. */
  kill(): Promise<void>;
}

export interface Services {
  readonly processes: Processes;
  /** A database of the test's own, dropped when the processes have ended. */
  database(): Promise<TestDatabase>;
  receiver(): Promise<Receiver>;
  /** An empty folder, removed at the end. */
  folder(): string;
  /** A file with this configuration; JSON is YAML. */
  configFile(config: ConfigTree): string;
  /** Starts `svc` without waiting for anything. */
  launch(options: ServiceOptions): Promise<Service>;
  /** Starts `svc` and waits until it is ready. */
  start(options: ServiceOptions): Promise<Service>;
  /** Closes something at the end, after the processes. */
  defer(close: () => unknown): void;
}

/**
 * Services, databases and receivers that end with the test, passed or failed. Call it at the top level of the file or of a
 * `describe` block.
 *
 * @param scope whether they end after each test or after all tests of the block
 */
export function useServices(scope: "test" | "block" = "test"): Services {
  const processes = useProcesses(scope);
  const closings: (() => unknown)[] = [];
  const closeAll = async () => {
    for (const close of closings.splice(0).reverse()) await close();
  };
  // Declared after the hooks of the processes, so that those have ended by then.
  if (scope === "test") afterEach(closeAll);
  afterAll(closeAll);

  const folder = () => {
    const made = mkdtempSync(path.join(tmpdir(), "svc-test-"));
    // PostgreSQL never runs as root: if the tests do, its own user must be able to pass through.
    chmodSync(made, 0o711);
    closings.push(() => rmSync(made, { recursive: true, force: true }));
    return made;
  };
  const configFile = (config: ConfigTree) => {
    const file = path.join(folder(), "svc.yml");
    writeFileSync(file, JSON.stringify(config, null, 2));
    return file;
  };
  const launch = async ({ database, config, port: givenPort, roles = [], env = {} }: ServiceOptions) => {
    const port = givenPort ?? (await freePort());
    const own = { server: { httpPort: port }, database: databaseConfig(database) };
    const child = processes.svc([...roles, "--config", configFile(merged(own, config))], { env });
    // A client gives up only when its peer is gone: an answer that never comes fails the test by its own time limit.
    const agent = new Agent({ keepAlive: true });
    closings.push(() => agent.destroy());
    return serviceAt(port, child, agent);
  };
  return {
    processes,
    folder,
    configFile,
    launch,
    async start(options) {
      const service = await launch(options);
      await service.ready();
      return service;
    },
    async database() {
      const database = await createDatabase();
      closings.push(() => database.drop());
      return database;
    },
    async receiver() {
      const receiver = await Receiver.start();
      closings.push(() => receiver.close());
      return receiver;
    },
    defer: (close) => {
      closings.push(close);
    },
  };
}

/**
 * A configuration that takes `{id, key, type}` at `/inbox/orders` and delivers it to `/hook` of a receiver, in order per `key`.
 *
 * @param overrides merged over it; lists are replaced
 */
export function ordersTo(receiver: Pick<Receiver, "url">, overrides: ConfigTree = {}): ConfigTree {
  const orders = {
    path: "/orders",
    idempotencyKeyPath: "$.id",
    aggregateIdPath: "$.key",
    eventTypePath: "$.type",
    topic: "orders.{{ eventType }}",
  };
  const base = {
    sources: { orders },
    destinations: { receiver: { baseUrl: receiver.url, path: "/hook" } },
    routes: [{ topicPattern: "orders.**", destination: "receiver" }],
  };
  return merged(base, overrides);
}

/** Merges two trees; the second one wins, and its lists replace those of the first. */
export function merged(base: ConfigTree, over: ConfigTree): ConfigTree {
  const result: Record<string, unknown> = { ...base };
  for (const [key, value] of Object.entries(over)) {
    const below = result[key];
    result[key] = isTree(below) && isTree(value) ? merged(below, value) : value;
  }
  return result;
}

/**
 * Readies a service that runs on for the next test: waits until no row of the outbox is left to deliver, then empties both
 * tables and what the receiver has got. It answers 200 again.
 */
export async function startOver(
  database: { query(text: string): Promise<readonly object[]> },
  receiver: Receiver,
): Promise<void> {
  const unsettled = "SELECT state FROM outbox WHERE state IN ('pending', 'processing')";
  await eventually(async () => expect(await database.query(unsettled)).toEqual([]));
  await database.query("DELETE FROM outbox");
  await database.query("DELETE FROM inbox");
  receiver.requests.splice(0);
  receiver.answer = { status: 200 };
}

function isTree(value: unknown): value is ConfigTree {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function serviceAt(port: number, child: RunningProcess, agent: Agent): Service {
  const get = (path: string, at = port) => exchange({ agent, port: at, method: "GET", path, headers: {} });
  return {
    process: child,
    port,
    post(body, { path = "/inbox/orders", headers = {} } = {}) {
      const bytes = typeof body === "string" || Buffer.isBuffer(body) ? body : JSON.stringify(body);
      const length = String(Buffer.byteLength(bytes));
      return exchange({ agent, port, method: "POST", path, headers: { "content-length": length, ...headers } }, bytes);
    },
    get,
    async readiness() {
      const answer = await get("/health/ready");
      const { status, components } = answer.json() as {
        status: string;
        components: Record<string, { status: string }>;
      };
      const states = Object.entries(components).map(([name, component]) => [name, component.status]);
      return { status: answer.status, verdict: status, components: Object.fromEntries(states) };
    },
    async metric(name) {
      return sumOfSamples((await get("/metrics")).text, name);
    },
    async ready() {
      await child.waitForLine(/"msg":"ready"/, 40_000);
    },
    stop() {
      // The service would wait for a request through these before it closes them. Those with a request on them have its answer coming.
      for (const sockets of Object.values(agent.freeSockets)) for (const socket of sockets ?? []) socket.destroy();
      child.kill("SIGTERM");
      return child.exited;
    },
    async kill() {
      child.kill("SIGKILL");
      await child.exited;
    },
  };
}

/** The sum of a metric's samples in the Prometheus text format. @param name with labels in braces: only samples that have them */
export function sumOfSamples(text: string, name: string): number {
  const [metric, labels = ""] = name.replace(/\}$/, "").split("{");
  return text
    .split("\n")
    .filter((line) => line.startsWith(`${metric} `) || line.startsWith(`${metric}{`))
    .filter((line) => labels.split(",").every((label) => line.includes(label)))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" ") + 1)), 0);
}

interface Exchange {
  readonly agent: Agent;
  readonly port: number;
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
}

function exchange({ agent, port, method, path, headers }: Exchange, body?: string | Buffer): Promise<HttpAnswer> {
  return new Promise((resolve, reject) => {
    const request = httpRequest({ agent, host: "127.0.0.1", port, method, path, headers });
    request.once("error", reject);
    request.once("response", (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.once("error", reject);
      response.once("end", () => {
        const text = Buffer.concat(chunks).toString("utf8");
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          text,
          json: () => JSON.parse(text) as unknown,
        });
      });
    });
    request.end(body);
  });
}
