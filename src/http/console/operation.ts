import type { InboundAuth } from "../../adapters/sources/http/schema.ts";
import type { Audit } from "../../core/operations/audit.ts";
import { bool, nullable, object, TIME_OR_NULL } from "../../model/described.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Clock } from "../../time/clock.ts";
import { type Access, credentialHeaderNames } from "../credentials.ts";
import type { BodyLimits } from "../exchange.ts";
import { error } from "../openapi/answers.ts";
import type { ConsoleFiles } from "./assets.ts";
import type { Session, Sessions } from "./sessions.ts";

export interface ConsoleOptions {
  readonly files: ConsoleFiles;
  /** Undefined with `admin.insecure`: nobody signs in. */
  readonly auth: InboundAuth | undefined;
  readonly sessions: Sessions | undefined;
  readonly access: Access | undefined;
  readonly limits: BodyLimits;
  readonly clock: Clock;
  readonly log: Log;
  /** `admin.showPayloads` */
  readonly showsPayloads: boolean;
  readonly audit: Audit;
}

export type Console = ReturnType<typeof createConsole>;

/** What the operations of the console share. */
export function createConsole(options: ConsoleOptions) {
  const { auth, sessions, showsPayloads } = options;
  const headerName = credentialHeaderNames(auth)[0] ?? null;
  return {
    ...options,
    headerName,
    /** What a page is shown of its session. */
    shown: (session: Session | undefined): object => ({
      isSignedIn: sessions === undefined || session !== undefined,
      method: auth?.kind ?? "none",
      headerName,
      by: session?.by ?? null,
      csrfToken: session === undefined ? null : (sessions?.csrfToken(session) ?? null),
      endsAt: session === undefined || sessions === undefined ? null : new Date(sessions.endsAt(session)).toISOString(),
      showsPayloads,
    }),
  };
}

export const SESSION = object({
  isSignedIn: [bool("True without `admin.auth` too."), true],
  method: [{ enum: ["bearer", "api-key", "hmac", "none"], description: "Kind of `admin.auth`." }, "bearer"],
  headerName: [nullable("string", "The header of the credentials."), "Authorization"],
  by: [nullable("string", "Who signed in, by their own account."), "alice"],
  csrfToken: [
    nullable("string", "For the header `X-CSRF-Token` of requests that change something."),
    "mqzCFQKXxB0mWvTjv1vOYdTt2g8N9t0hV1o6u3bG3nE",
  ],
  endsAt: [{ ...TIME_OR_NULL, description: "When the session ends unless it is used." }, "2025-01-31T12:30:00.000Z"],
  showsPayloads: [bool("`admin.showPayloads`"), false],
});

export const CROSS_SITE = error(
  403,
  "The request comes from another site, or with `admin.insecure` by a foreign host name.",
  "the request comes from another site (Sec-Fetch-Site: cross-site)",
);
