import type { Access } from "../credentials.ts";
import { ERRORS } from "../exchange.ts";
import {
  bodyAnswers,
  error,
  inPath,
  invalidBody,
  json,
  plain,
  RETRY_AFTER,
  type RouteDescription,
  unauthorized,
} from "./answers.ts";
import { BY } from "./changes.ts";
import { bool, exampleOf, nullable, object, request, TEXT, TIME_OR_NULL } from "./schemas.ts";

const SESSION = object({
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
const SIGNED_OUT = { isSignedIn: false, by: null, csrfToken: null, endsAt: null };

const SIGN_IN = request({
  by: { ...BY, description: "Who signs in." },
  code: nullable("string", "A one-time code, where the header of the credentials is absent."),
});

const CROSS_SITE = error(
  403,
  "The request comes from another site, or with `admin.insecure` by a foreign host name.",
  "the request comes from another site (Sec-Fetch-Site: cross-site)",
);

/** Describes the page of the console, its files and its sessions. @param maxBytes of a body */
export function describeConsole(access: Access | undefined, maxBytes: number) {
  return {
    console: {
      summary: "The console",
      description:
        "The page for operators. It holds no data: it reads the admin routes with the session of its reader.",
      answers: [plain("The page.", "text/html; charset=utf-8")],
    },
    console_asset: {
      summary: "A file of the console",
      description: "Scripts and styles, whose names change with their content.",
      parameters: [inPath("file", "Name of the file.", TEXT)],
      answers: [
        plain("A script.", "text/javascript; charset=utf-8"),
        plain("A style sheet.", "text/css; charset=utf-8"),
        error(404, "No such file.", ERRORS.notFound),
      ],
    },
    console_session: {
      summary: "Show the session of this browser",
      description: "Needs no credentials: the page asks how to sign in.",
      answers: [json(200, "The session, or how to make one.", SESSION), CROSS_SITE],
    },
    console_sign_in: {
      summary: "Sign in to the console",
      description:
        "Makes a session from the admin token or key in its header, or from a one-time code of `svc console sign-in` in the " +
        "body. The session is a cookie: 30 minutes unless used, 8 hours at most.",
      body: {
        isOptional: true,
        maxBytes,
        schema: SIGN_IN,
        examples: { byAlice: { summary: "With the token or key in its header", value: { by: "alice" } } },
      },
      answers: [
        json(200, "The session; the cookie is in `Set-Cookie`.", SESSION),
        invalidBody("the body is an array; a JSON object is expected"),
        ...unauthorized(access),
        CROSS_SITE,
        error(
          429,
          "Too many failed sign-ins from this address.",
          "Too many failed sign-ins: try again in 42 s",
          "Error",
          RETRY_AFTER,
        ),
      ],
    },
    console_sign_out: {
      summary: "Sign out of the console",
      description: "Ends the session of this browser. Needs the header `X-CSRF-Token` and no body.",
      answers: [
        json(200, "No session is left.", SESSION, { ...(exampleOf(SESSION) as object), ...SIGNED_OUT }),
        error(403, "The CSRF token is missing or wrong, or the request comes from another site.", ERRORS.noCsrfToken),
        ...bodyAnswers(maxBytes),
      ],
    },
  } satisfies Readonly<Record<string, RouteDescription>>;
}
