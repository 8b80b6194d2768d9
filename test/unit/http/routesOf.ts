import { adminRole } from "../../../roles/admin.ts";
import type { RoleContext, RoleParts } from "../../../roles/context.ts";
import { ingestRole } from "../../../roles/ingest.ts";
import type { Config } from "../../../src/config/types.ts";
import { Tally } from "../../../src/core/operations/heartbeat.ts";
import type { ConsoleFiles } from "../../../src/http/console/assets.ts";
import { openApiDocument } from "../../../src/http/openapi/document.ts";
import type { OpenApiDocument } from "../../../src/http/openapi/types.ts";
import { processRoutes } from "../../../src/http/processRoutes.ts";
import type { Route } from "../../../src/http/routes.ts";
import type { Role } from "../../../src/model/roles.ts";
import type { Store } from "../../../src/ports/store.ts";
import { ManualClock, recordingAudit, recordingLog, recordingMetrics } from "../../support/recorders.ts";
import { bodyLimits } from "./harness.ts";

export const ALL_ROLES: readonly Role[] = ["ingest", "relay", "poller", "admin"];

/** Instead of what the build makes. */
const NO_FILES: ConsoleFiles = {
  page: { type: "text/html", bytes: Buffer.alloc(0), gzipped: Buffer.alloc(0) },
  assets: new Map(),
};

/** The routes of a process with these roles; none of them may be asked for anything. */
export async function routesOf(config: Config, roles: readonly Role[] = ALL_ROLES): Promise<readonly Route[]> {
  const context: RoleContext = {
    config,
    configText: "",
    store: { inbox: {} } as Store,
    clock: new ManualClock(),
    log: recordingLog().log,
    metrics: recordingMetrics().metrics,
    tally: new Tally(new ManualClock()),
    audit: recordingAudit().audit,
    secrets: { mask: (text) => text, add: () => () => {} },
    redact: (text) => text,
    evaluator: { evaluate: () => Promise.reject(new Error("no test evaluates anything here")) },
    bodies: bodyLimits(1).budget,
    fleet: { others: { pollers: 0, relays: 0 } },
    wakes: {
      relay: () => {},
      relayed: () => {},
      receive: (_rows, insert) => insert(undefined),
      poller: () => {},
      hasPoller: false,
      pollerIntervalMs: () => 100,
    },
  };
  const parts: RoleParts[] = [];
  if (roles.includes("ingest")) parts.push(await ingestRole(context, context));
  if (roles.includes("admin") && config.admin.enabled) parts.push(adminRole(context, () => NO_FILES));
  for (const closer of parts.flatMap((part) => part.closers ?? [])) void closer.stop(new AbortController().signal);
  return processRoutes(
    parts.flatMap((part) => part.routes ?? []),
    {
      health: { readiness: async () => ({ ready: true, body: { status: "healthy", components: {} } }) },
      metrics: async () => "",
      document: documentOptions(config),
    },
  );
}

/** The document that such a process serves. */
export async function documentOf(config: Config, roles: readonly Role[] = ALL_ROLES): Promise<OpenApiDocument> {
  return openApiDocument(await routesOf(config, roles), documentOptions(config));
}

const documentOptions = ({ server, inbox }: Config) => ({ version: "1.2.3", server, maxBodyBytes: inbox.maxBodyBytes });
