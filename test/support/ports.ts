import { createServer } from "node:net";

/**
 * Below the ports that systems give to outgoing connections (from 32768 on Linux, from 49152 elsewhere): between the look at a port and its use none of them can take
 * it. Each worker of jest has ports of its own.
 */
const FIRST_PORT = 10_000;
const PORTS_OF_WORKER = 2000;
const WORKERS = 10;
const worker = Number(process.env.JEST_WORKER_ID ?? 0) % WORKERS;
// The files of a worker begin at different ports, as what the last one had started may still be going.
let next = Math.floor(Math.random() * PORTS_OF_WORKER);

/** A TCP port that nobody listens on at the moment, on any address. Prefer listening on port 0 if the code under test allows it. */
export async function freePort(): Promise<number> {
  for (;;) {
    next = (next + 1) % PORTS_OF_WORKER;
    const port = FIRST_PORT + worker * PORTS_OF_WORKER + next;
    if (await isFree(port)) return port;
  }
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen(port, () => server.close(() => resolve(true)));
  });
}
