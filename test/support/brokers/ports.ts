import { randomInt } from "node:crypto";
import { createServer } from "node:net";

/** Below the range from which Linux and macOS choose the port of an outgoing connection. */
const LOWEST = 12_000;
const HIGHEST = 32_000;

/**
 * TCP ports of 127.0.0.1 for a server that stops and starts again: nobody listens on them now, and no client gets one of them as
 * its own while the server is down.
 *
 * @throws Error when no free port is found
 */
export async function lastingPorts(count: number): Promise<readonly number[]> {
  const found = new Set<number>();
  for (let attempt = 0; attempt < 100 * count && found.size < count; attempt++) {
    const port = randomInt(LOWEST, HIGHEST);
    if (await isFree(port)) found.add(port);
  }
  if (found.size < count) throw new Error(`no ${count} free ports between ${LOWEST} and ${HIGHEST}`);
  return [...found];
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen({ port, host: "127.0.0.1", exclusive: true }, () => server.close(() => resolve(true)));
  });
}
