import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { ConfigError } from "../model/errors.ts";
import type { Secret } from "../model/secret.ts";
import type { Clock } from "../time/clock.ts";

/** The `auth` block of an HTTP source or of the admin routes (spec, "Source auth kinds"); its keys tell the kind. */
export type InboundAuth = BearerAuth | ApiKeyAuth | HmacAuth;

export interface BearerAuth {
  readonly token: Secret;
}

export interface ApiKeyAuth {
  readonly key: Secret;
  readonly headerName: string;
}

export interface HmacAuth {
  readonly secret: Secret;
  readonly headerName: string;
  readonly algorithm: HmacAlgorithm;
  readonly signaturePrefix: string;
  readonly timestampHeader?: string | undefined;
  /** Largest allowed difference from the clock in ms. */
  readonly timestampTolerance: number;
  /** Absent: the timestamp is signed too when there is a `timestampHeader`. */
  readonly signaturePayloadFormat?: SignaturePayloadFormat | undefined;
}

export type HmacAlgorithm = "HmacSHA256" | "HmacSHA512";
export type SignaturePayloadFormat = "body" | "BODY" | "timestamp-dot-body" | "TIMESTAMP_DOT_BODY";

export interface VerifierOptions {
  /** Key path of the block, for the error when it is unusable, such as `sources.orders.auth`. */
  readonly path: string;
  readonly clock: Pick<Clock, "now">;
}

/** Checks the credentials of a request. */
export interface Verifier {
  /** The scheme for the `WWW-Authenticate` header that a 401 answer must have (RFC 9110, section 15.5.2). */
  readonly challenge: string;
  /** Whether the credentials are proven by the body too; if not, the headers alone decide. */
  readonly signsBody: boolean;
  /**
   * @param headers as Node parsed them, names in lower case
   * @param body the body's bytes as they came; null checks what the headers alone can show
   * @returns why the request is refused, naming the check and never a credential; null when the credentials hold
   */
  refusal(headers: IncomingHttpHeaders, body: Buffer | null): string | null;
}

/**
 * Makes the verifier of an `auth` block.
 *
 * @throws ConfigError when the secret is empty (whoever sends an empty one would pass), or when a timestamp is to be signed
 *   that no header brings
 */
export function createVerifier(auth: InboundAuth, { path, clock }: VerifierOptions): Verifier {
  if ("token" in auth) return bearer(checked(auth.token, `${path}.token`));
  if ("key" in auth) return apiKey(checked(auth.key, `${path}.key`), auth.headerName);
  if (signsTimestamp(auth) && auth.timestampHeader === undefined) {
    const message = "TIMESTAMP_DOT_BODY signs a timestamp; name its header in timestampHeader";
    throw new ConfigError([{ path: `${path}.signaturePayloadFormat`, message }]);
  }
  return hmac(checked(auth.secret, `${path}.secret`), auth, clock);
}

/** The request headers that carry the credentials of a block. */
export function credentialHeaderNames(auth: InboundAuth | undefined): readonly string[] {
  if (auth === undefined) return [];
  return "token" in auth ? ["Authorization"] : [auth.headerName];
}

function checked(secret: Secret, path: string): string {
  const value = secret.reveal();
  if (value !== "") return value;
  throw new ConfigError([{ path, message: "is empty, so that anybody would pass; set a value" }]);
}

function bearer(token: string): Verifier {
  const matches = matcher(token);
  return {
    challenge: "Bearer",
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

function apiKey(key: string, headerName: string): Verifier {
  const matches = matcher(key);
  const lowerCaseName = headerName.toLowerCase();
  return {
    challenge: "ApiKey",
    signsBody: false,
    refusal(headers) {
      const received = headerText(headers, lowerCaseName);
      if (received === undefined) return `missing ${headerName} header`;
      return matches(received) ? null : `the API key in the ${headerName} header is wrong`;
    },
  };
}

function hmac(secret: string, auth: HmacAuth, clock: Pick<Clock, "now">): Verifier {
  const { headerName, signaturePrefix, timestampHeader, timestampTolerance } = auth;
  const digestName = HMAC_DIGESTS[auth.algorithm];
  const withTimestamp = signsTimestamp(auth);

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
    challenge: "HMAC",
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

      const expected = createHmac(digestName, secret);
      if (withTimestamp) expected.update(`${timestamp}.`);
      const matches = sameDigest(expected.update(body).digest(), Buffer.from(signature, "hex"));
      return matches ? null : `the signature in the ${headerName} header is wrong`;
    },
  };
}

const HMAC_DIGESTS: Readonly<Record<HmacAlgorithm, string>> = { HmacSHA256: "sha256", HmacSHA512: "sha512" };

const TIMESTAMP_SIGNED: Readonly<Record<SignaturePayloadFormat, boolean>> = {
  body: false,
  BODY: false,
  "timestamp-dot-body": true,
  TIMESTAMP_DOT_BODY: true,
};

function signsTimestamp({ signaturePayloadFormat, timestampHeader }: HmacAuth): boolean {
  return signaturePayloadFormat === undefined
    ? timestampHeader !== undefined
    : TIMESTAMP_SIGNED[signaturePayloadFormat];
}

/** Compares with a secret in a time that tells neither its content nor its length: digests of both sides are compared. */
function matcher(secret: string): (received: string) => boolean {
  const expected = sha256(Buffer.from(secret, "utf8"));
  // Header text is latin1, a character a byte: this gives back the bytes that were sent.
  return (received) => timingSafeEqual(expected, sha256(Buffer.from(received, "latin1")));
}

const sha256 = (bytes: Buffer): Buffer => createHash("sha256").update(bytes).digest();

/** The length of a signature is no secret, its bytes are. */
const sameDigest = (a: Buffer, b: Buffer): boolean => a.length === b.length && timingSafeEqual(a, b);

function headerText(headers: IncomingHttpHeaders, lowerCaseName: string): string | undefined {
  const value = headers[lowerCaseName];
  return Array.isArray(value) ? value.join(", ") : value;
}
