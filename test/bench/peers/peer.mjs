import { Agent, request } from "node:http";

/** What both peers have in common: they post the payload of a job to a receiver, with as many connections as svc has deliveries at a time. */
export const CONCURRENCY = 64;
/** Jobs that are fetched together, as svc claims. */
export const BATCH = 500;

/** @returns posts a text over a kept-alive connection; rejects unless the answer is 2xx */
export function poster(port) {
  const agent = new Agent({ keepAlive: true, maxSockets: CONCURRENCY });
  return (body) =>
    new Promise((resolve, reject) => {
      const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
      const sent = request({ agent, host: "127.0.0.1", port, method: "POST", path: "/", headers }, (response) => {
        response.resume();
        response.once("end", () =>
          response.statusCode < 300 ? resolve() : reject(new Error(`status ${response.statusCode}`)),
        );
      });
      sent.once("error", reject);
      sent.end(body);
    });
}

/** Tells the benchmark that the peer works, and ends it at SIGTERM. */
export function ready(stop) {
  process.once("SIGTERM", () => void stop().finally(() => process.exit(0)));
  process.stdout.write("0\n");
}
