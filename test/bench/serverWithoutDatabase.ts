import { httpPlan } from "../../src/core/receipt/attributes.ts";
import { createReceiver } from "../../src/core/receipt/receive.ts";
import { BodyBudget } from "../../src/http/exchange.ts";
import { inboxRoutes } from "../../src/http/inbox.ts";
import { createApps, HttpServer } from "../../src/http/server.ts";
import type { Log } from "../../src/ports/runtime.ts";
import { createMetrics } from "../../src/runtime/metrics.ts";
import { systemClock } from "../../src/time/clock.ts";

/** The ingest role with its store taken out, as a process of its own: what the database costs is the difference. Prints its port. */
const log: Log = { debug() {}, info() {}, warn() {}, error() {}, child: () => log };
const { metrics } = createMetrics({ version: "bench" });
const paths = { idempotencyKeyPath: ["$.id"], aggregateIdPath: ["$.key"] };
const receiver = createReceiver({
  source: "bench",
  settings: { consumption: "push" },
  attributes: httpPlan(paths),
  batcher: {
    add: async () => ({ kind: "stored" }),
    addRequest: async (rows) => rows.map(() => ({ kind: "stored" })),
  },
  clock: systemClock,
  metrics,
  log,
});
const routes = inboxRoutes({
  inbox: { basePath: "/inbox", maxBodyBytes: 1_048_576, credentialHeaders: [] },
  sources: [
    {
      settings: { path: "/bench", consumption: "push", ...paths, batch: { atomic: false, maxItems: 10_000 } },
      receiver,
    },
  ],
  budget: new BodyBudget(67_108_864, systemClock),
  clock: systemClock,
  metrics,
});
const apps = createApps({ routes, hasManagementPort: false, maxBodyBytes: 1_048_576, log });
const server = new HttpServer({ name: "http", port: 0, portKey: "-", listener: apps.data, log });
await server.start();
process.stdout.write(`${server.port}\n`);
process.on("SIGTERM", () => process.exit(0));
