import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { createInterface } from "node:readline";
import type { Transaction } from "./enqueue.ts";

/** Helpers for tests of applications; see the README. */

/** What a message must have. `payload` is compared as JSON. */
export interface Match {
  readonly topic?: string;
  readonly key?: string | null;
  readonly payload?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

/**
 * Finds a message that the transaction, or a committed one, has put into the outbox.
 *
 * @returns the newest message that matches: `id`, `topic`, `key`, `payload` (text), `headers`
 * @throws Error with the newest messages when none matches
 */
export async function assertEnqueued(tx: Transaction, match: Match): Promise<Readonly<Record<string, unknown>>> {
  const top = tx.dialect === "sqlserver" ? "TOP 100 " : "";
  const limit = tx.dialect === "sqlserver" ? "" : " LIMIT 100";
  const key = tx.dialect === "sqlserver" ? "[key]" : "key";
  const text = `SELECT ${top}id, topic, ${key}, payload, headers FROM outbox ORDER BY sequence DESC${limit}`;
  const rows = await tx.query([text], []);
  const found = rows.find((row) => fits(row, match));
  if (found !== undefined) return found;
  const newest = rows
    .slice(0, 5)
    .map((row) => `  ${row.topic} ${row.key ?? "(no key)"} ${String(row.payload).slice(0, 200)}`);
  throw new Error(
    `no message like ${JSON.stringify(match)} is in the outbox; the newest of ${rows.length}:\n${newest.join("\n")}`,
  );
}

function fits(row: Readonly<Record<string, unknown>>, { topic, key, payload, headers }: Match): boolean {
  const stored = typeof row.headers === "string" ? JSON.parse(row.headers) : (row.headers ?? {});
  return (
    (topic === undefined || row.topic === topic) &&
    (key === undefined || row.key === key) &&
    (payload === undefined || isSame(JSON.parse(String(row.payload)), JSON.parse(JSON.stringify(payload)))) &&
    Object.entries(headers ?? {}).every(([name, value]) => stored[name] === value)
  );
}

function isSame(one: unknown, other: unknown): boolean {
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return one === other;
  const names = Object.keys(one);
  const [a, b] = [one as Record<string, unknown>, other as Record<string, unknown>];
  return names.length === Object.keys(other).length && names.every((name) => isSame(a[name], b[name]));
}

export interface ReceivedDelivery {
  readonly id: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  /** It has come before. */
  readonly isRepeated: boolean;
}

export interface MemoryReceiver extends AsyncDisposable {
  /** For `destinations.<name>.baseUrl`. */
  readonly url: string;
  /** In the order of their arrival. */
  readonly deliveries: readonly ReceivedDelivery[];
  /**
   * Resolves with the first deliveries of all messages when there are as many different messages.
   *
   * @param timeoutMs default 10,000; then it rejects with how many came
   */
  received(count: number, timeoutMs?: number): Promise<readonly ReceivedDelivery[]>;
  /** The answer to deliveries from now on; 200 by default. */
  status: number;
}

/** A receiver of HTTP deliveries in memory. */
export async function memoryReceiver(): Promise<MemoryReceiver> {
  const deliveries: ReceivedDelivery[] = [];
  const waiting: (() => void)[] = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request.setEncoding("utf8")) body += chunk;
    const id = String(request.headers["x-message-id"]);
    const isTaken = receiver.status < 300;
    if (isTaken)
      deliveries.push({ id, headers: request.headers, body, isRepeated: deliveries.some((each) => each.id === id) });
    response.writeHead(receiver.status).end();
    for (const look of waiting) look();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const receiver: MemoryReceiver = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    deliveries,
    status: 200,
    received: (count, timeoutMs = 10_000) =>
      new Promise((resolve, reject) => {
        const first = () => deliveries.filter(({ isRepeated }) => !isRepeated);
        const timer = setTimeout(() => {
          reject(new Error(`${first().length} of ${count} messages came within ${timeoutMs} ms`));
        }, timeoutMs);
        const look = () => {
          if (first().length < count) return;
          clearTimeout(timer);
          resolve(first());
        };
        waiting.push(look);
        look();
      }),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return receiver;
}

export interface RunningDev extends AsyncDisposable {
  /** Of the embedded PostgreSQL. */
  readonly databaseUrl: string;
  /** What svc has printed, its errors too. */
  readonly lines: readonly string[];
}

export interface SvcDevOptions {
  /** The program of svc and its first arguments, such as `[process.execPath, "/path/to/svc-relay/dist/roles/svc.js"]`. */
  readonly command: readonly string[];
  /**
   * A folder that exists, with the `svc.yml` or without one: svc writes a sample then. The database of svc stays in its
   * `.svc/`: for a test without the messages of the last one, take an empty folder.
   */
  readonly cwd: string;
  /** Besides the variables of this process; `undefined` removes a variable. */
  readonly env?: Readonly<Record<string, string | undefined>>;
}

/** Runs a real `svc dev` in a folder, with its embedded PostgreSQL, until it is disposed of. */
export async function svcDev({ command, cwd, env }: SvcDevOptions): Promise<RunningDev> {
  const [file = "", ...args] = command;
  // npx and shells do not pass a signal to svc: it goes to their process group, which Windows does not have.
  const detached = process.platform !== "win32";
  const child = spawn(file, [...args, "dev"], {
    cwd,
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
    detached,
  });
  const stop = () => {
    try {
      if (child.pid !== undefined) process.kill(detached ? -child.pid : child.pid, "SIGTERM");
    } catch {
      // It has ended.
    }
  };
  // The terminal's Ctrl-C does not reach another group.
  const onSignal = (signal: NodeJS.Signals) => {
    stop();
    if (process.listenerCount(signal) === 0) process.kill(process.pid, signal);
  };
  process.once("exit", stop);
  for (const signal of SIGNALS) process.once(signal, onSignal);
  const lines: string[] = [];
  const closed = new Promise<number | null>((resolve) => child.once("close", resolve)).finally(() => {
    process.off("exit", stop);
    for (const signal of SIGNALS) process.off(signal, onSignal);
  });
  await new Promise<void>((resolve, reject) => {
    child.once("error", reject);
    for (const input of [child.stdout, child.stderr]) {
      createInterface({ input }).on("line", (line) => {
        lines.push(line);
        if (line.startsWith("svc is running")) resolve();
      });
    }
    void closed.then((code) => {
      reject(new Error(`svc dev ended with code ${code}; its last lines:\n${lines.slice(-20).join("\n")}`));
    });
  });
  return {
    databaseUrl: (await readFile(path.join(cwd, ".svc", "database-url"), "utf8")).trim(),
    lines,
    async [Symbol.asyncDispose]() {
      stop();
      await closed;
    },
  };
}

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
