import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import type { HmacAuth, InboundAuth } from "../adapters/sources/http/schema.ts";
import type { Clock } from "../time/clock.ts";
import type { Parameter, SecurityScheme } from "./openapi/types.ts";

/** Checks the credentials of a request. */
export interface Verifier {
  /** The scheme for the `WWW-Authenticate` header that a 401 answer must have (RFC 9110, section 15.5.2). */
  readonly challenge: string;
  /** Whether the credentials cover the body too; if not, the headers alone decide. */
  readonly signsBody: boolean;
  /**
   * @param headers as Node parsed them, names in lower case
   * @param body the body's bytes as they came; null checks what the headers alone can show
   * @returns why the request is refused, naming the check and never a credential; null when the credentials hold
   */
  refusal(headers: IncomingHttpHeaders, body: Buffer | null): string | null;
}

type Check = Omit<Verifier, "challenge">;

/**
 * One kind of inbound credentials (spec, "Source auth kinds"): how they are checked, and how the OpenAPI document
 * describes them.
 */
interface AuthKind<A> {
  readonly challenge: Verifier["challenge"];
  readonly verifier: (auth: A, clock: Pick<Clock, "now">) => Check;
  /** The request headers that carry the credentials. */
  readonly headerNames: (auth: A) => readonly string[];
  /** @param owner what the credentials protect, such as `the source orders` */
  readonly scheme: (auth: A, owner: string) => SecurityScheme;
  /** Further headers of a request. */
  readonly parameters?: (auth: A) => readonly Parameter[];
}

const KINDS: { readonly [K in InboundAuth["kind"]]: AuthKind<Extract<InboundAuth, { readonly kind: K }>> } = {
  bearer: {
    challenge: "Bearer",
    verifier: ({ token }) => bearer(token.reveal()),
    headerNames: () => ["Authorization"],
    scheme: (_auth, owner) => ({ type: "http", scheme: "bearer", description: `The token of ${owner}.` }),
  },
  "api-key": {
    challenge: "ApiKey",
    verifier: ({ key, headerName }) => apiKey(key.reveal(), headerName),
    headerNames: ({ headerName }) => [headerName],
    scheme: ({ headerName }, owner) => inHeader(headerName, `The key of ${owner}.`),
  },
  hmac: {
    challenge: "HMAC",
    verifier: hmac,
    headerNames: ({ headerName }) => [headerName],
    scheme: (auth, owner) =>
      inHeader(auth.headerName, `HMAC of the request with the secret of ${owner}: ${signing(auth)}`),
    parameters: timestampParameter,
  },
};

function kindOf<A extends InboundAuth>({ kind }: A): AuthKind<A> {
  // TypeScript cannot infer that the entry of a kind takes the block of that kind.
  return KINDS[kind] as unknown as AuthKind<A>;
}

/** Makes the verifier of an `auth` block. */
export function createVerifier(auth: InboundAuth, clock: Pick<Clock, "now">): Verifier {
  const { challenge, verifier } = kindOf(auth);
  return { challenge, ...verifier(auth, clock) };
}

/** The challenges of all kinds. */
export const CHALLENGES: readonly string[] = Object.values(KINDS).map(({ challenge }) => challenge);

/** The request headers that carry the credentials of a block; none without one. */
export function credentialHeaderNames(auth: InboundAuth | undefined): readonly string[] {
  return auth === undefined ? [] : kindOf(auth).headerNames(auth);
}

/** Whether a request brings credentials of a block, right or wrong. */
export function hasCredentials(headers: IncomingHttpHeaders, auth: InboundAuth | undefined): boolean {
  return credentialHeaderNames(auth).some((name) => headers[name.toLowerCase()] !== undefined);
}

/** How a route is protected, for the OpenAPI document. */
export interface Access {
  /** Name of the security scheme. */
  readonly name: string;
  readonly scheme: SecurityScheme;
  readonly parameters: readonly Parameter[];
}

/**
 * Describes an `auth` block; its secret is not read.
 *
 * @param name of the security scheme: letters, digits, `.`, `-` and `_`
 * @param owner what it protects, such as `the source orders`
 * @returns undefined without a block: every caller passes
 */
export function accessOf(auth: InboundAuth | undefined, name: string, owner: string): Access | undefined {
  if (auth === undefined) return undefined;
  const { scheme, parameters } = kindOf(auth);
  return { name, scheme: scheme(auth, owner), parameters: parameters?.(auth) ?? [] };
}

function bearer(token: string): Check {
  const matches = matcher(token);
  return {
    signsBody: false,
    refusal(headers) {
      const header = headerText(headers, "authorization");
      if (header === undefined) return "missing Authorization header";
      const received = /^bearer +(.*)$/i.exec(header)?.[1];
      if (received === undefined) return "the Authorization header has no Bearer token";
      return matches(received) ? null : "the Bearer token is wrong";
    },
  };
}

function apiKey(key: string, headerName: string): Check {
  const matches = matcher(key);
  const lowerCaseName = headerName.toLowerCase();
  return {
    signsBody: false,
    refusal(headers) {
      const received = headerText(headers, lowerCaseName);
      if (received === undefined) return `missing ${headerName} header`;
      return matches(received) ? null : `the API key in the ${headerName} header is wrong`;
    },
  };
}

const DIGESTS: Readonly<Record<HmacAuth["algorithm"], string>> = { HmacSHA256: "sha256", HmacSHA512: "sha512" };

function hmac(auth: HmacAuth, clock: Pick<Clock, "now">): Check {
  const { headerName, algorithm, signaturePrefix, signaturePayloadFormat, timestampHeader, timestampTolerance } = auth;
  const secret = auth.secret.reveal();

  function timestampRefusal(timestamp: string | undefined): string | null {
    if (timestampHeader === undefined) return null;
    if (timestamp === undefined) return `missing ${timestampHeader} header`;
    if (!/^\d{1,15}$/.test(timestamp)) return `the ${timestampHeader} header is not a time in Unix milliseconds`;
    const difference = Math.abs(clock.now() - Number(timestamp));
    return difference <= timestampTolerance
      ? null
      : `the time in the ${timestampHeader} header is more than ${timestampTolerance} ms away from the clock`;
  }

  return {
    signsBody: true,
    refusal(headers, body) {
      const header = headerText(headers, headerName.toLowerCase());
      if (header === undefined) return `missing ${headerName} header`;
      const timestamp = timestampHeader && headerText(headers, timestampHeader.toLowerCase());
      const reason = timestampRefusal(timestamp);
      if (reason !== null) return reason;
      if (!header.startsWith(signaturePrefix)) {
        return `the ${headerName} header does not begin with ${JSON.stringify(signaturePrefix)}`;
      }
      const signature = header.slice(signaturePrefix.length);
      if (!/^(?:[0-9a-f]{2})+$/i.test(signature)) return `the ${headerName} header holds no hexadecimal signature`;
      if (body === null) return null;

      const expected = createHmac(DIGESTS[algorithm], secret);
      if (signaturePayloadFormat === "TIMESTAMP_DOT_BODY") expected.update(`${timestamp}.`);
      const matches = sameDigest(expected.update(body).digest(), Buffer.from(signature, "hex"));
      return matches ? null : `the signature in the ${headerName} header is wrong`;
    },
  };
}

function inHeader(name: string, description: string): SecurityScheme {
  return { type: "apiKey", in: "header", name, description };
}

function signing({ algorithm, signaturePrefix, timestampHeader, signaturePayloadFormat }: HmacAuth): string {
  const signed =
    signaturePayloadFormat === "TIMESTAMP_DOT_BODY"
      ? `the text of the ${timestampHeader} header, a dot, and the body's bytes`
      : "the body's bytes";
  const prefix = signaturePrefix === "" ? "" : `\`${signaturePrefix}\` and then `;
  return `${prefix}the hexadecimal ${algorithm} of ${signed}.`;
}

function timestampParameter({ timestampHeader, timestampTolerance }: HmacAuth): readonly Parameter[] {
  if (timestampHeader === undefined) return [];
  const description = `Time of the request in Unix milliseconds, at most ${timestampTolerance} ms away from the service's clock.`;
  const schema = { type: "string", pattern: "^[0-9]{1,15}$" };
  return [{ name: timestampHeader, in: "header", required: true, description, schema }];
}

/**
 * Compares digests with a secret's, in a time that reveals neither its content nor its length.
 */
function matcher(secret: string): (received: string) => boolean {
  const expected = sha256(Buffer.from(secret, "utf8"));
  // Header text is latin1, one character per byte: these are the bytes that were sent.
  return (received) => timingSafeEqual(expected, sha256(Buffer.from(received, "latin1")));
}

const sha256 = (bytes: Buffer): Buffer => createHash("sha256").update(bytes).digest();

/** The length of a signature is public, its bytes are not. */
const sameDigest = (a: Buffer, b: Buffer): boolean => a.length === b.length && timingSafeEqual(a, b);

function headerText(headers: IncomingHttpHeaders, lowerCaseName: string): string | undefined {
  const value = headers[lowerCaseName];
  return Array.isArray(value) ? value.join(", ") : value;
}
