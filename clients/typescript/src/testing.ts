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
  /** Resolves when there are as many different messages. */
  received(count: number): Promise<readonly ReceivedDelivery[]>;
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
    received: (count) =>
      new Promise((resolve) => {
        const look = () => {
          const first = deliveries.filter(({ isRepeated }) => !isRepeated);
          if (first.length >= count) resolve(first);
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
  readonly lines: readonly string[];
}

/**
 * Runs a real `svc dev` in a folder, with its embedded PostgreSQL, until it is disposed of.
 *
 * @param options `command`: how svc starts, such as `["npx", "svc-relay"]`; `cwd`: an empty folder, or one with an `svc.yml`
 */
export async function svcDev(options: {
  readonly command: readonly string[];
  readonly cwd: string;
}): Promise<RunningDev> {
  const [file = "", ...args] = options.command;
  const child = spawn(file, [...args, "dev"], { cwd: options.cwd, stdio: ["ignore", "pipe", "inherit"] });
  const lines: string[] = [];
  await new Promise<void>((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", () => reject(new Error(`svc dev ended; its last lines:\n${lines.slice(-10).join("\n")}`)));
    createInterface({ input: child.stdout }).on("line", (line) => {
      lines.push(line);
      if (line.startsWith("svc is running")) resolve();
    });
  });
  return {
    databaseUrl: (await readFile(path.join(options.cwd, ".svc", "database-url"), "utf8")).trim(),
    lines,
    async [Symbol.asyncDispose]() {
      const ended = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGTERM");
      await ended;
    },
  };
}
