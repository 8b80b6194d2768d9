import { randomUUID } from "node:crypto";
import { connect, type Socket } from "node:net";
import { createInterface } from "node:readline";

/**
 * A closed-loop sender as a process of its own: each of its keep-alive connections posts the next message, by default of 1 kB, when the last one is
 * answered. Arguments: port, path, connections, keys, bytes of padding. Prints 0; then for an input line `ms` sends for that long and prints the number of
 * 2xx answers and of others.
 */
const [port = 0, , connections = 64, keys = 500, paddingBytes = 900] = process.argv.slice(2).map(Number);
const path = process.argv[3] ?? "/";
const padding = "x".repeat(paddingBytes);
const run = randomUUID();
let sent = 0;

function request(): string {
  sent += 1;
  const body = `{"id":"${run}-${sent}","key":"key-${sent % keys}","padding":"${padding}"}`;
  return `POST ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
}

let deadline = 0;
let accepted = 0;
let refused = 0;
let active = 0;
let finished = (): void => {};

function drive(socket: Socket): () => void {
  let pending = "";
  const next = (): void => {
    if (performance.now() < deadline) {
      socket.write(request());
      return;
    }
    active -= 1;
    if (active === 0) finished();
  };
  socket.setNoDelay(true);
  socket.setEncoding("latin1");
  socket.on("data", (chunk: string) => {
    pending += chunk;
    for (;;) {
      const end = pending.indexOf("\r\n\r\n");
      if (end < 0) return;
      const length = Number(/\r\ncontent-length: *(\d+)/i.exec(pending)?.[1] ?? 0);
      if (pending.length < end + 4 + length) return;
      if (/^HTTP\/1\.1 2/.test(pending)) accepted += 1;
      else refused += 1;
      pending = pending.slice(end + 4 + length);
      next();
    }
  });
  return next;
}

const starts = await Promise.all(
  Array.from({ length: connections }, () => {
    const socket = connect({ port, host: "127.0.0.1" });
    return new Promise<() => void>((resolve, reject) => {
      socket.once("connect", () => resolve(drive(socket)));
      socket.once("error", reject);
    });
  }),
);
process.stdout.write("0\n");
createInterface({ input: process.stdin }).on("line", (line) => {
  deadline = performance.now() + Number(line);
  accepted = 0;
  refused = 0;
  active = starts.length;
  finished = () => process.stdout.write(`${accepted} ${refused}\n`);
  for (const start of starts) start();
});
process.on("SIGTERM", () => process.exit(0));
