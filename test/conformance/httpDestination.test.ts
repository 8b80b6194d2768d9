import { createHttpDestination } from "../../src/adapters/destinations/http/index.ts";
import { KnownSecrets } from "../../src/core/redaction/redact.ts";
import type { Destination } from "../../src/ports/destination.ts";
import { startBlackHole } from "../support/blackHole.ts";
import { HTTP_DEFAULTS } from "../support/httpDefaults.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { Receiver } from "../support/receiver.ts";
import { silentMetrics } from "../support/recorders.ts";
import { exerciseDestination } from "./destination.ts";

failOnLeaks();

exerciseDestination({
  name: "http",
  // Every publish may open a connection of its own: there is nothing to wait for.
  reconnectMs: 0,
  shortestTimeoutMs: 50,
  messageIdHeader: "x-message-id",
  async start() {
    const receiver = await Receiver.start();
    const blackHole = await startBlackHole();
    const nobody = await Receiver.reserved();
    const destinations: Destination[] = [];
    const open = (baseUrl: string, timeoutMs: number): Destination => {
      const destination = createHttpDestination(
        { ...HTTP_DEFAULTS, baseUrl, timeoutMs },
        {
          maxErrorBodyBytes: 2048,
          blockPrivateAddresses: false,
          connections: 256,
          clock: { now: () => Date.now(), monotonic: () => performance.now() },
          metrics: silentMetrics,
          secrets: new KnownSecrets(),
        },
      );
      destinations.push(destination);
      return destination;
    };
    return {
      create: () => open(receiver.url, 30_000),
      createUnanswered: (timeoutMs) => open(`http://127.0.0.1:${blackHole.port}`, timeoutMs),
      createUnreachable: (timeoutMs) => open(nobody.url, timeoutMs),
      address: (message) => message,
      arrived: async (count) =>
        (await receiver.received(count)).map(({ body, headers }) => ({
          body,
          headers: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, String(value)])),
        })),
      stopReceiver: () => receiver.close(),
      startReceiver: () => receiver.listen(),
      async [Symbol.asyncDispose]() {
        await Promise.all(destinations.map((destination) => destination.close()));
        await receiver.close();
        await blackHole.close();
      },
    };
  },
});
