import { LosslessNumber, parse } from "lossless-json";
import type { AttributePlace } from "../../../ports/kinds.ts";

/** How the senders of webhooks sign: what the `hmac` kind and every provider are made of, for one verifier. */

/** Digests of an HMAC. SHA-1 is weak: only for senders that offer nothing else. */
export type Digest = "sha1" | "sha256" | "sha384" | "sha512";

/** `text`: not encoded, for a secret that the request itself carries. */
export type Encoding = "hex" | "base64" | "base64url" | "text";

/** How a configured secret is written, and what it verifies. */
export type KeyForm =
  /** The text itself is the key of an HMAC. */
  | { readonly hmac: Digest; readonly secret: "text" | "hex" }
  /** Standard Webhooks: `whsec_` and a base64 key for `v1`, `whpk_` and a base64 ed25519 public key for `v1a`. */
  | { readonly standard: "whsec_ required" | "whsec_ optional" }
  /** An ed25519 public key in hexadecimal. */
  | { readonly publicKey: "ed25519" }
  /** A public key as base64 DER or PEM, or a PEM certificate; signatures are DER (ECDSA) or PKCS #1 (RSA) over SHA-256. */
  | { readonly publicKey: "ec" | "rsa" }
  /** The request carries the secret itself. */
  | { readonly token: true };

type SignaturePlace =
  /** One signature behind a prefix. */
  | { readonly header: string; readonly prefix?: string }
  /** Fields such as `t=…,v1=…`; several of the name are as many signatures. */
  | { readonly header: string; readonly field: string; readonly separator: "," | ";" }
  /** Standard Webhooks: `v1,<signature>`, several separated by spaces. */
  | { readonly header: string; readonly versions: true }
  /** In the JSON body. */
  | { readonly path: string }
  /** In the JSON body, one in every item of a list: each must be right. */
  | { readonly list: string; readonly member: string };

interface TimePlace {
  /** `field`: in the signature header. */
  readonly at: { readonly header: string } | { readonly field: string } | { readonly path: string };
  readonly unit: "ms" | "s" | "iso";
}

export interface SignatureScheme {
  readonly at: SignaturePlace;
  readonly encoding: Encoding;
  readonly key: KeyForm;
  /** Template of the signed text, see `signedText.ts`. */
  readonly signed: string;
  readonly time?: TimePlace;
  /** The sender is not consistent about the port of the URL: with and without it. */
  readonly anyPort?: true;
  /** The body must not have this: signatures do not cover it. */
  readonly without?: string;
}

/** What of a request its sender may have signed. Node's `IncomingMessage` fits. */
export interface SignedRequest {
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly method?: string | undefined;
  /** Path and query as received. */
  readonly url?: string | undefined;
  /** Names and values in turn. */
  readonly rawHeaders?: readonly string[] | undefined;
  /** Its peer: the sender, or a proxy. */
  readonly socket?: { readonly remoteAddress?: string | undefined } | undefined;
}

/** A header's text; repeated ones are joined. */
export function headerText({ headers }: Pick<SignedRequest, "headers">, name: string): string | undefined {
  const key = name.toLowerCase();
  // Of Node's headers `constructor` would be the one of every object.
  const value = Object.hasOwn(headers, key) ? headers[key] : undefined;
  return Array.isArray(value) ? value.join(", ") : value;
}

/** A value of a JSON document at a path of this folder's tables, `$.items[0].event-data`. Only own members count. */
export function valueAt(document: unknown, path: string): unknown {
  let value = document;
  for (const name of path.match(/[^$.[\]]+/g) ?? []) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, name)) return undefined;
    // An index names an item of a list, as in the JSONPath of the key: `{"0": ...}` must not pass for a list of one.
    if (Array.isArray(value) !== /^\d+$/.test(name)) return undefined;
    value = (value as Record<string, unknown>)[name];
  }
  return value;
}

/** Text, and the digits of a number; undefined for anything else. @param document of {@link jsonOf} */
export function scalarAt(document: unknown, path: string): string | undefined {
  const value = valueAt(document, path);
  return value instanceof LosslessNumber ? value.value : textOf(value);
}

export const textOf = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined);

const UTF8 = new TextDecoder("utf-8", { fatal: true });

/**
 * The JSON of a body, for signed values. Its numbers keep their digits, as `LosslessNumber`.
 *
 * @returns undefined for other text, or an object with two members of one name: readers differ in which one counts
 */
export function jsonOf(body: Buffer): unknown {
  try {
    const text = UTF8.decode(body);
    // Parsing drops all but one of the members of a name.
    return countMembers(JSON.stringify(JSON.parse(text))) === countMembers(text) ? parse(text) : undefined;
  } catch {
    return undefined;
  }
}

const TEXTS = /"[^"\\]*(?:\\.[^"\\]*)*"/g;
const countMembers = (json: string): number => json.replace(TEXTS, "").split(":").length;

/** A sender of webhooks: what the service has to know of it is data. `docs/webhooks` has a page for each. */
export interface Provider {
  readonly title: string;
  /** What to put into `secret`, as the provider calls it. */
  readonly secret: string;
  /** The first whose `when` header the request has and whose form a secret has; a scheme without `when` comes last. */
  readonly schemes: readonly (SignatureScheme & { readonly when?: string })[];
  /**
   * Places of the key, in order. Retries of one event must have the same key, different events never. If a request is a
   * list of events, also the place in a single event, which is the body with `batch.path`; of the type as well.
   */
  readonly idempotencyKey: readonly AttributePlace[];
  readonly eventType: readonly AttributePlace[];
  /** Default of `timestampTolerance`, in ms; 5 minutes without one. */
  readonly toleranceMs?: number;
  /** Keys of the block that it cannot do without. */
  readonly needs?: readonly ("url" | "webhookId")[];
  readonly takes?: readonly ("verifyToken" | "verifyTokens")[];
  /** It sends forms, which become JSON. `jsonField`: the field that holds the message as JSON, if there is one. */
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
  /** Answers a signed one. @param secret gives the secret that signed the request */
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
