import type { AttributePlace } from "../../../../ports/kinds.ts";
import type { SignatureScheme } from "../scheme.ts";

/** A sender of webhooks: what the service has to know of it is data. `docs/webhooks` has a page for each. */
export interface Provider {
  readonly title: string;
  /** What to put into `secret`, as the provider calls it. */
  readonly secret: string;
  /** The first whose `when` header the request has and whose form a secret has; a scheme without `when` comes last. */
  readonly schemes: readonly (SignatureScheme & { readonly when?: string })[];
  /**
   * Where the key is, in order. Retries of one event must have the same one, different events never. Where a request is
   * a list of events, also where an event alone has it, which is the body with `batch.path`; of the type as well.
   */
  readonly idempotencyKey: readonly AttributePlace[];
  readonly eventType: readonly AttributePlace[];
  /** Default of `timestampTolerance`, in ms; 5 minutes without one. */
  readonly toleranceMs?: number;
  /** Keys of the block that it cannot do without. */
  readonly needs?: readonly ("url" | "webhookId")[];
  readonly takes?: readonly ("verifyToken" | "verifyTokens")[];
  /** It sends forms, which become JSON. `jsonField`: the field that holds the message as JSON, where there is one. */
  readonly form?: { readonly jsonField?: string };
  readonly handshake?: Handshake;
}

/** Requests with which a provider checks the URL. They are answered, and leave no row. */
interface Handshake {
  /** Methods besides POST. */
  readonly methods?: readonly ("GET" | "HEAD")[];
  /** What a POST gets, with an example: text, JSON, or nothing. */
  readonly answers?: Readonly<Partial<Record<200 | 204, string | object>>>;
  /** Answers a request without a signature; undefined for any other. */
  readonly greet?: (request: Greeting, verifyTokens: readonly string[]) => HandshakeAnswer | undefined;
  /** What the body of a signed handshake contains: no other body is looked into. */
  readonly marker?: string;
  /** Answers a signed one. @param secret gives the one that the request is signed with */
  readonly reply?: (document: unknown, secret: () => string | undefined) => HandshakeAnswer | undefined;
}

export interface Greeting {
  readonly method: string;
  /** Its body is JSON, as that of a message. */
  readonly isJson: boolean;
  readonly query: URLSearchParams;
}

export interface HandshakeAnswer {
  readonly status: 200 | 204 | 400 | 403;
  /** Sent as `text/plain`, or as JSON. */
  readonly body: string | object;
  readonly headers?: Readonly<Record<string, string>>;
}

const MINUTE_MS = 60_000;
export const HOUR_MS = 60 * MINUTE_MS;
export const DEFAULT_TOLERANCE_MS = 5 * MINUTE_MS;

/** HMAC-SHA256 with the secret's text as key, as most providers sign. */
export const HMAC_SHA256 = { hmac: "sha256", secret: "text" } as const;

/** The last resort for a key: a retry has the same body. */
export const BODY_DIGEST: AttributePlace = { digest: "body" };
