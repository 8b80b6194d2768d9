import { BY_PATTERN, LONGEST_BY } from "../../core/finished/requests.ts";
import type { Access } from "../credentials.ts";
import { ERRORS } from "../respond.ts";
import {
  type Answer,
  bodyAnswers,
  error,
  json,
  RETRY_AFTER,
  type RouteDescription,
  tooLarge,
  unauthorized,
} from "./answers.ts";
import { nullable, object, parameter, request, TEXT, TEXT_OR_NULL, TIME_OR_NULL } from "./schemas.ts";

const SESSION = object({
  isSignedIn: { type: "boolean", description: "True without `admin.auth` too." },
  method: { enum: ["bearer", "api-key", "hmac", "none"], description: "Kind of `admin.auth`." },
  headerName: { ...TEXT_OR_NULL, description: "The header of the credentials." },
  by: { ...TEXT_OR_NULL, description: "Who signed in, by their own account." },
  csrfToken: { ...TEXT_OR_NULL, description: "For the header `X-CSRF-Token` of requests that change something." },
  endsAt: { ...TIME_OR_NULL, description: "When the session ends unless it is used." },
  showsPayloads: { type: "boolean", description: "`admin.showPayloads`" },
});

const SESSION_EXAMPLE = {
  isSignedIn: true,
  method: "bearer",
  headerName: "Authorization",
  by: "alice",
  csrfToken: "mqzCFQKXxB0mWvTjv1vOYdTt2g8N9t0hV1o6u3bG3nE",
  endsAt: "2025-01-31T12:30:00.000Z",
  showsPayloads: false,
};

const file = (description: string, mediaType: string): Answer => [
  200,
  { description, content: { [mediaType]: { schema: { type: "string" } } } },
];

const FOREIGN_SITE = "the request comes from another site (Sec-Fetch-Site: cross-site)";

/** Describes the page of the console, its files and its sessions. */
export function describeConsole(access: Access | undefined, maxBodyBytes: number) {
  const page: RouteDescription = {
    summary: "The console",
    description: "The page for operators. It holds no data: it reads the admin routes with the session of its reader.",
    answers: [file("The page.", "text/html; charset=utf-8")],
  };
  const asset: RouteDescription = {
    summary: "A file of the console",
    description: "Scripts and styles, whose names change with their content.",
    parameters: [parameter("path", "file", "Name of the file.", TEXT)],
    answers: [
      file("A script.", "text/javascript; charset=utf-8"),
      file("A style sheet.", "text/css; charset=utf-8"),
      error(404, "No such file.", "Error", ERRORS.notFound),
    ],
  };
  const session: RouteDescription = {
    summary: "Show the session of this browser",
    description: "Needs no credentials: the page asks how to sign in.",
    answers: [
      json(200, "The session, or how to make one.", SESSION, SESSION_EXAMPLE),
      ...(access === undefined
        ? [error(403, "A browser used a foreign host name.", "Error", "with admin.insecure a browser may use ...")]
        : []),
    ],
  };
  const signIn: RouteDescription = {
    summary: "Sign in to the console",
    description:
      "Makes a session from the admin credentials in their header, or from a one-time code of `svc console sign-in` in the " +
      "body. The session is a cookie: 30 minutes unless used, 8 hours at most.",
    body: {
      isOptional: true,
      description: `At most ${maxBodyBytes} bytes.`,
      schema: request({
        by: nullable("string", {
          minLength: 1,
          maxLength: LONGEST_BY,
          pattern: BY_PATTERN,
          description: "Who signs in.",
        }),
        code: { ...TEXT_OR_NULL, description: "A one-time code, where the header of the credentials is absent." },
      }),
      examples: { byAlice: { summary: "With credentials in their header", value: { by: "alice" } } },
    },
    answers: [
      json(200, "The session; the cookie is in `Set-Cookie`.", SESSION, SESSION_EXAMPLE),
      error(
        400,
        "The body is not a valid request.",
        "InvalidRequest",
        "Invalid request: the body is an array; a JSON object is expected",
      ),
      ...unauthorized(access),
      error(403, "The request comes from another site.", "Error", FOREIGN_SITE),
      error(
        429,
        "Too many failed sign-ins from this address.",
        "Error",
        "Too many failed sign-ins: try again in 42 s",
        RETRY_AFTER,
      ),
      ...bodyAnswers(),
      tooLarge(maxBodyBytes),
    ],
  };
  const signOut: RouteDescription = {
    summary: "Sign out of the console",
    description: "Ends the session of this browser. Needs the header `X-CSRF-Token` and no body.",
    answers: [
      json(200, "No session is left.", SESSION, {
        ...SESSION_EXAMPLE,
        isSignedIn: false,
        by: null,
        csrfToken: null,
        endsAt: null,
      }),
      error(
        403,
        "The CSRF token is missing or wrong, or the request comes from another site.",
        "Error",
        ERRORS.noCsrfToken,
      ),
      ...bodyAnswers(),
      tooLarge(maxBodyBytes),
    ],
  };
  return { page, asset, session, signIn, signOut };
}

/** Describes the admin routes that the console reads besides those of operators. */
export function describeConsoleReads(access: Access | undefined) {
  const config: RouteDescription = {
    summary: "Show the configuration in effect",
    description: "As `svc config print` shows it: YAML with the origin of each value, secrets masked.",
    access,
    answers: [
      json(200, "The configuration of this process.", object({ text: TEXT }), {
        text: "server:\n  httpPort: 8080  # svc.yml:3\n",
      }),
      ...unauthorized(access),
    ],
  };
  const events: RouteDescription = {
    summary: "Follow the overview",
    description:
      "Server-sent events: `overview` with the answer of `GET /admin/overview`, at once and every few seconds; `unavailable` " +
      "while the database does not answer. A comment every 15 seconds keeps the connection open.",
    access,
    answers: [
      file("The events, until the client or the service ends them.", "text/event-stream; charset=utf-8"),
      ...unauthorized(access),
      error(503, "Too many clients follow.", "Error", ERRORS.tooManyFollowers, RETRY_AFTER),
    ],
  };
  return { config, events };
}
