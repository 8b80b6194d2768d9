import type { IncomingHttpHeaders } from "node:http";
import {
  type Covered,
  covers,
  createCertificateCheck,
  createProviderCheck,
  createSignatureCheck,
  credentialHeadersOf,
  credentialsOf,
  type Digest,
  headerText,
  matcher,
  parseSignedText,
  providerOf,
  type Refusal,
  readKey,
  type SignatureScheme,
  secretsOf,
  signatureHeaders,
  signedTextOf,
} from "../adapters/sources/http/kind.ts";
import type { HmacAuth, InboundAuth } from "../adapters/sources/http/schema.ts";
import { madeOf } from "../model/secret.ts";
import type { Clock } from "../time/clock.ts";
import type { Parameter, SecurityScheme } from "./openapi/types.ts";

export interface Verifier {
  /** The scheme for the `WWW-Authenticate` header that a 401 answer must have (RFC 9110, section 15.5.2). */
  readonly challenge: string;
  /** Whether the credentials cover the body too; if not, the headers alone decide. */
  readonly signsBody: boolean;
  /**
   * Why the request is refused, naming the check and never a credential; null when the credentials hold.
   *
   * @param request its headers as Node parsed them, names in lower case
   * @param body the body's bytes as they came; null checks what the headers alone can show
   */
  readonly refusal: Refusal;
}

type Check = Omit<Verifier, "challenge">;

/**
 * One kind of inbound credentials (spec, "Source auth kinds"): its check, and its description in the OpenAPI document.
 */
interface AuthKind<A> {
  readonly challenge: Verifier["challenge"];
  readonly verifier: (auth: A, clock: Pick<Clock, "now">, covered: Covered) => Check;
  /** @param owner what the credentials protect, such as `the source orders` */
  readonly scheme: (auth: A, owner: string) => SecurityScheme;
  /** Further headers of a request. */
  readonly parameters?: (auth: A) => readonly Parameter[];
}

const KINDS: { readonly [K in InboundAuth["kind"]]: AuthKind<Extract<InboundAuth, { readonly kind: K }>> } = {
  bearer: {
    challenge: "Bearer",
    verifier: (auth) => bearer(secretsOf(auth)),
    scheme: (_auth, owner) => ({ type: "http", scheme: "bearer", description: `The token of ${owner}.` }),
  },
  "api-key": {
    challenge: "ApiKey",
    verifier: (auth) => apiKey(secretsOf(auth), auth.headerName),
    scheme: ({ headerName }, owner) => inHeader(headerName, `The key of ${owner}.`),
  },
  hmac: {
    challenge: "HMAC",
    verifier: hmac,
    scheme: (auth, owner) => inHeader(auth.headerName, `HMAC with the secret of ${owner}: ${signing(auth)}`),
    parameters: timestampParameter,
  },
  "client-certificate": {
    challenge: "ClientCertificate",
    verifier: (auth, clock) => ({ signsBody: false, refusal: createCertificateCheck(auth, () => clock.now()) }),
    scheme: (_auth, owner) => ({
      type: "mutualTLS",
      description: `Mutual TLS with the proxy in front, with a certificate that ${owner} takes.`,
    }),
  },
  provider: {
    challenge: "Signature",
    verifier: (auth, clock) => ({ signsBody: true, refusal: createProviderCheck(auth, clock).refusal }),
    scheme({ provider }, owner) {
      const { title, secret } = providerOf(provider);
      const description = `Signed as ${title} does, with ${owner}'s secret (${secret}).`;
      const [header] = signatureHeaders(providerOf(provider));
      return header === undefined ? { type: "http", scheme: "Signature", description } : inHeader(header, description);
    },
  },
};

function kindOf<A extends InboundAuth>({ kind }: A): AuthKind<A> {
  // TypeScript cannot infer that the entry of a kind takes the block of that kind.
  return KINDS[kind] as unknown as AuthKind<A>;
}

/** Makes the verifier of an `auth` block. @param covered what a signature must cover */
export function createVerifier(auth: InboundAuth, clock: Pick<Clock, "now">, covered: Covered = "body"): Verifier {
  const { challenge, verifier } = kindOf(auth);
  const current = madeOf(credentialsOf(auth), () => verifier(auth, clock, covered));
  return {
    challenge,
    signsBody: current().signsBody,
    refusal: (request, body) => current().refusal(request, body),
  };
}

/** The challenges of callers; a provider's webhooks have their own. */
const CALLERS: readonly string[] = (["bearer", "api-key", "hmac"] as const).map((kind) => KINDS[kind].challenge);

/** The request headers that carry the credentials of a block; none without one. */
export function credentialHeaderNames(auth: InboundAuth | undefined): readonly string[] {
  return auth?.kind === "bearer" ? ["Authorization"] : credentialHeadersOf(auth);
}

/** Whether a request brings credentials of a block, right or wrong. */
export function hasCredentials(headers: IncomingHttpHeaders, auth: InboundAuth | undefined): boolean {
  return credentialHeaderNames(auth).some((name) => headers[name.toLowerCase()] !== undefined);
}

export interface Access {
  /** Name of the security scheme. */
  readonly name: string;
  readonly scheme: SecurityScheme;
  readonly parameters: readonly Parameter[];
  /** What `WWW-Authenticate` of a 401 answer can be. */
  readonly challenges: readonly string[];
}

/** Describes an `auth` block, undefined without one. @param owner what it protects, such as `the source orders` */
export function accessOf(auth: InboundAuth | undefined, name: string, owner: string): Access | undefined {
  if (auth === undefined) return undefined;
  const { scheme, parameters, challenge } = kindOf(auth);
  const isOfSources = auth.kind === "provider" || auth.kind === "client-certificate";
  const challenges = isOfSources ? [challenge] : CALLERS;
  return { name, scheme: scheme(auth, owner), parameters: parameters?.(auth) ?? [], challenges };
}

function bearer(tokens: readonly string[]): Check {
  const matches = anyOf(tokens);
  return {
    signsBody: false,
    refusal(request) {
      const header = headerText(request, "authorization");
      if (header === undefined) return "missing Authorization header";
      const received = /^bearer +(.*)$/i.exec(header)?.[1];
      if (received === undefined) return "the Authorization header has no Bearer token";
      return matches(received) ? null : "the Bearer token is wrong";
    },
  };
}

function apiKey(keys: readonly string[], headerName: string): Check {
  const matches = anyOf(keys);
  return {
    signsBody: false,
    refusal(request) {
      const received = headerText(request, headerName);
      if (received === undefined) return `missing ${headerName} header`;
      return matches(received) ? null : `the API key in the ${headerName} header is wrong`;
    },
  };
}

/** Whether header text is one of the secrets; all are compared, whichever it is. */
function anyOf(secrets: readonly string[]): (received: string) => boolean {
  const matchers = secrets.map(matcher);
  // Header text is latin1, one character per byte: these are the bytes that were sent.
  return (received) => matchers.filter((matches) => matches(Buffer.from(received, "latin1"))).length > 0;
}

const DIGESTS: Readonly<Record<HmacAuth["algorithm"], Digest>> = {
  HmacSHA256: "sha256",
  HmacSHA512: "sha512",
  HmacSHA384: "sha384",
  HmacSHA1: "sha1",
};

function hmac(auth: HmacAuth, clock: Pick<Clock, "now">, covered: Covered): Check {
  if (!covers(auth, covered)) return { signsBody: false, refusal: () => NOT_COVERED };
  const scheme = schemeOf(auth);
  const check = createSignatureCheck({
    scheme,
    signed: parseSignedText(scheme.signed),
    keys: secretsOf(auth).flatMap((secret) => readKey(scheme.key, secret) ?? []),
    toleranceMs: auth.timestampTolerance,
    url: auth.url,
    now: () => clock.now(),
  });
  // Nobody reads the body of a GET: what follows a dot in its query could be moved there.
  const refusal: Refusal = (request, body) =>
    covered === "request" && request.method !== "POST" && body?.length ? GET_WITH_BODY : check(request, body);
  return { signsBody: true, refusal };
}

const NOT_COVERED = "the signature must cover the request: it needs signaturePayloadFormat timestamp-dot-request";
const GET_WITH_BODY = "a signed GET has no body";

function schemeOf(auth: HmacAuth): SignatureScheme {
  const { headerName: header, signatureField: field, signaturePrefix: prefix } = auth;
  const { timestampHeader, timestampField = "" } = auth;
  const time = timestampHeader === undefined ? { field: timestampField } : { header: timestampHeader };
  return {
    at: field === undefined ? { header, prefix } : { header, field, separator: "," },
    encoding: auth.encoding,
    key: { hmac: DIGESTS[auth.algorithm], secret: "text" },
    signed: signedTextOf(auth),
    ...(time.field === "" ? {} : { time: { at: time, unit: auth.timestampUnit } }),
  };
}

function inHeader(name: string, description: string): SecurityScheme {
  return { type: "apiKey", in: "header", name, description };
}

function signing(auth: HmacAuth): string {
  const { algorithm, encoding, signatureField, signaturePrefix, timestampField } = auth;
  const names = { hex: "hexadecimal", base64: "base64", base64url: "base64url" } as const;
  const prefix = signaturePrefix === "" ? "" : `\`${signaturePrefix}\` and then `;
  const before = signatureField === undefined ? prefix : `in the field \`${signatureField}\` of a list, `;
  const time = timestampField === undefined ? "" : `, whose timestamp is in the field \`${timestampField}\``;
  return `${before}the ${names[encoding]} ${algorithm} of \`${signedTextOf(auth)}\`${time}.`;
}

function timestampParameter({ timestampHeader, timestampUnit, timestampTolerance }: HmacAuth): readonly Parameter[] {
  if (timestampHeader === undefined) return [];
  const unit = timestampUnit === "s" ? "seconds" : "milliseconds";
  const description = `Time of the request in Unix ${unit}, at most ${timestampTolerance} ms away from the service's clock.`;
  const schema = { type: "string", pattern: timestampUnit === "s" ? "^[0-9]{1,12}$" : "^[0-9]{1,15}$" };
  return [{ name: timestampHeader, in: "header", required: true, description, schema }];
}
