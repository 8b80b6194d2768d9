import { Agent, request } from "undici";
import type { Processes, RunningProcess } from "../processes.ts";
import { startTcpProxy, type TcpProxy } from "../tcpProxy.ts";
import type { Role } from "./plan.ts";
import type { Timeline } from "./timeline.ts";

export interface ReplicaOptions {
  readonly role: Role;
  readonly index: number;
  readonly port: number;
  readonly processes: Processes;
  readonly database: { readonly host: string; readonly port: number };
  readonly timeline: Timeline;
  /** Writes a configuration for a process that calls itself `name`, and gives the path of the file. */
  readonly configure: (name: string, databasePort: number) => string;
  readonly env: Readonly<Record<string, string>>;
}

/** A process that ended although nobody had ended it. */
export interface UnexpectedEnd {
  readonly name: string;
  readonly lastLines: readonly string[];
}

/** Further roles of the replicas that receive: some leave their rows to others, some relay them, some deliver them too. */
const INGEST_BESIDES = [[], ["relay", "poller"], ["relay"]];
const KEPT_LINES = 400;
export const ADMIN_TOKEN = "the-operator";
/** A client that has waited this long tries elsewhere. */
const CLIENT_PATIENCE_MS = 4000;

/**
 * One of several replicas: a process after another at the same port, with a way of its own to the database. Each process has a name of its own
 * (`poller-1.3` is the third process of the second poller), which the database and the receivers see.
 */
export class Replica {
  readonly role: Role;
  readonly proxy: TcpProxy;
  readonly unexpectedEnds: UnexpectedEnd[] = [];
  /** Whether somebody is about to end the process, or has. */
  busy = false;
  readonly #options: ReplicaOptions;
  readonly #agent = new Agent({
    headersTimeout: CLIENT_PATIENCE_MS,
    bodyTimeout: CLIENT_PATIENCE_MS,
    connectTimeout: CLIENT_PATIENCE_MS,
  });
  readonly #endedLogs = new Map<string, readonly string[]>();
  #generation = 0;
  #process: RunningProcess | undefined;
  #closing = false;

  private constructor(options: ReplicaOptions, proxy: TcpProxy) {
    this.#options = options;
    this.role = options.role;
    this.proxy = proxy;
  }

  static async start(options: ReplicaOptions): Promise<Replica> {
    const replica = new Replica(options, await startTcpProxy(options.database));
    replica.launch();
    return replica;
  }

  /** What its processes have in common in their names. */
  get slot(): string {
    return `${this.#options.role}-${this.#options.index}`;
  }

  /** Name of the process that runs now, or was the last to run. */
  get name(): string {
    return `${this.slot}.${this.#generation}`;
  }

  get port(): number {
    return this.#options.port;
  }

  /** Of the process that runs now, or was the last to run. */
  get pid(): number | undefined {
    return this.#process?.pid;
  }

  /** The last lines of the log of a process. */
  log(name: string): readonly string[] {
    return (name === this.name ? this.#process?.lines : this.#endedLogs.get(name)) ?? [];
  }

  /** Starts the next process, without waiting for it. */
  launch(): void {
    const { processes, configure, role, index, env } = this.#options;
    this.#generation += 1;
    const { name } = this;
    const besides = INGEST_BESIDES[index % INGEST_BESIDES.length] ?? [];
    const roles = role === "ingest" ? [role, "admin", ...besides] : [role];
    const launched = processes.svc([...roles, "--config", configure(name, this.proxy.port)], { env });
    this.#process = launched;
    void launched.exited.then(({ code, signal }) => {
      this.#endedLogs.set(name, launched.lines.slice(-KEPT_LINES));
      if (this.#process !== launched || this.busy || this.#closing) return;
      const lastLines = launched.lines.slice(-20);
      this.#options.timeline.note(`${name} ended by itself: ${signal ?? code}; ${lastLines.at(-1)}`);
      this.unexpectedEnds.push({ name, lastLines });
      // Nobody but the end of the test kills what no fault kills.
      if (signal !== "SIGKILL") this.launch();
    });
  }

  signal(signal: NodeJS.Signals): void {
    this.#process?.kill(signal);
  }

  /** Resolves when the process that runs now has ended. */
  async ended(): Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }> {
    return (await this.#process?.exited) ?? { code: null, signal: null };
  }

  /** Posts a message to a source as a client with a time limit does. @throws the connection's error when there is no answer */
  async post(source: string, body: string): Promise<{ readonly status: number; readonly text: string }> {
    return this.#request("POST", `/inbox/${source}`, body);
  }

  /** Calls an admin route; a replica of the role `ingest` has them. @throws the connection's error when there is no answer */
  async admin(path: string, body: string): Promise<{ readonly status: number; readonly text: string }> {
    return this.#request("POST", path, body, { authorization: `Bearer ${ADMIN_TOKEN}` });
  }

  async isReady(): Promise<boolean> {
    return await this.#request("GET", "/health/ready").then(
      ({ status }) => status === 200,
      () => false,
    );
  }

  /** Ends by SIGTERM for good. @returns how it ended */
  async stop(): ReturnType<Replica["ended"]> {
    this.#closing = true;
    this.signal("SIGTERM");
    return this.ended();
  }

  /** Closes what does not end with the process. */
  async close(): Promise<void> {
    this.#closing = true;
    await this.#agent.destroy();
    await this.proxy.close();
  }

  async #request(method: "GET" | "POST", path: string, body?: string, headers: Record<string, string> = {}) {
    const url = `http://127.0.0.1:${this.#options.port}${path}`;
    const answer = await request(url, { method, dispatcher: this.#agent, body: body ?? null, headers });
    return { status: answer.statusCode, text: await answer.body.text() };
  }
}
