import { adminRole } from "../../../roles/admin.ts";
import { type RoleContext, type RoleParts, Wakes } from "../../../roles/context.ts";
import { ingestRole } from "../../../roles/ingest.ts";
import type { Config } from "../../../src/config/types.ts";
import { Tally } from "../../../src/core/operations/heartbeat.ts";
import type { ConsoleFiles } from "../../../src/http/console/page.ts";
import { openApiDocument } from "../../../src/http/openapi/document.ts";
import type { OpenApiDocument } from "../../../src/http/openapi/types.ts";
import { processRoutes } from "../../../src/http/process/routes.ts";
import type { HttpRoute } from "../../../src/http/routes.ts";
import type { Role } from "../../../src/model/roles.ts";
import type { Store } from "../../../src/ports/store.ts";
import { NO_TRACING } from "../../../src/setup/tracing.ts";
import { ManualClock, recordingLog, recordingMetrics } from "../../support/recorders.ts";
import { bodyLimits } from "./harness.ts";

const ALL_ROLES: readonly Role[] = ["ingest", "relay", "poller", "admin"];

/** Every route, with each kind of credentials and of source. */
export const EVERYTHING = `
server: { managementPort: 9090 }
inbox:
  basePath: /in
  maxBodyBytes: 5000
  pull: { enabled: true, basePath: /out, leaseMs: 4000, auth: { token: pull-secret } }
sources:
  open: { path: /open, idempotencyKeyPath: $.id, topic: t }
  bearer: { path: /bearer, idempotencyKeyPath: "$.a['b c'][1]", aggregateIdPath: $.a.d, topic: t, auth: { token: bearer-secret } }
  key: { path: /key, idempotencyKeyPath: "$[-1]", topic: t, auth: { key: key-secret, headerName: X-Key } }
  hmac:
    path: /hmac
    idempotencyKeyPath: $.id
    eventTypePath: $.type
    aggregateIdPath: $.customer
    topic: t
    auth: { secret: hmac-secret, algorithm: HmacSHA512, signaturePrefix: "", timestampHeader: X-Time }
    filter: { require: [{ header: X-Kind, exists: true }] }
    rateLimit: { requestsPerMinute: 7 }
    transform: { expression: $ }
  github: { path: /github, auth: { provider: github, secrets: [x-secret, y-secret] } }
  mailgun: { path: /mailgun, auth: { provider: mailgun, secret: mail-secret }, idempotencyKeyPath: $.event-data.id }
  "fetched/by hand": { path: /fetched, idempotencyKeyPath: $.id, consumption: pull }
  queue: { connectionUrl: amqp://h, queueName: q, consumption: pull }
destinations: { d: { baseUrl: http://h } }
routes: [{ topicPattern: "**", destination: d }]
admin: { enabled: true, console: true, auth: { token: admin-secret }, maxPayloadBytes: 70, maxTransformTimeoutMs: 321 }
`;

/** Instead of what the build makes. */
const NO_FILES: ConsoleFiles = {
  page: { type: "text/html", bytes: Buffer.alloc(0), gzipped: Buffer.alloc(0) },
  assets: new Map(),
};

/** The routes of a process with these roles; none of them may be asked for anything. */
export async function routesOf(config: Config, roles: readonly Role[] = ALL_ROLES): Promise<readonly HttpRoute[]> {
  const context: RoleContext = {
    config,
    configText: "",
    tracing: NO_TRACING,
    store: { inbox: {} } as Store,
    control: {} as Store,
    states: {} as RoleContext["states"],
    clock: new ManualClock(),
    log: recordingLog().log,
    metrics: recordingMetrics().metrics,
    tally: new Tally(new ManualClock()),
    secrets: { mask: (text) => text, add: () => () => {} },
    redact: (text) => text,
    evaluator: { evaluate: () => Promise.reject(new Error("no test evaluates anything here")) },
    bodies: bodyLimits(1).budget,
    fleet: { others: { pollers: 0, relays: 0 } },
    wakes: new Wakes(() => {}),
    receipts: { relay: undefined, claim: () => undefined },
  };
  const parts: RoleParts[] = [];
  if (roles.includes("ingest")) parts.push(await ingestRole(context, context));
  if (roles.includes("admin") && config.admin.enabled) parts.push(adminRole(context, () => NO_FILES));
  for (const closer of parts.flatMap((part) => part.closers ?? [])) void closer.stop(new AbortController().signal);
  return processRoutes(
    parts.flatMap((part) => part.routes ?? []),
    {
      health: { readiness: async () => ({ ready: true, body: { status: "healthy", components: {} } }) },
      metrics: async () => ({ text: "" }),
      document: documentOptions(config),
    },
  );
}

/** The document that such a process serves. */
export async function documentOf(config: Config, roles: readonly Role[] = ALL_ROLES): Promise<OpenApiDocument> {
  return openApiDocument(await routesOf(config, roles), documentOptions(config));
}

const documentOptions = ({ server, inbox }: Config) => ({ version: "1.2.3", server, maxBodyBytes: inbox.maxBodyBytes });
