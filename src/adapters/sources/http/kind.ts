import type { Report, When } from "../../../ports/kinds.ts";
import { certificateProblems } from "./clientCertificate.ts";
import { providerOf } from "./providers/index.ts";
import { CREDENTIAL_KEYS, type DeclaredAuth, type DeclaredAuthOf, httpSourceSchema, secretsOf } from "./schema.ts";
import type { Provider } from "./scheme.ts";
import { secretProblem } from "./signature.ts";
import { covers, hasPlaceholder, parseSignedText } from "./signedText.ts";

export { createCertificateCheck } from "./clientCertificate.ts";
export { matcher, readKey } from "./keys.ts";
export { providerOf } from "./providers/index.ts";
export { credentialsOf, secretsOf, verifyTokensOf } from "./schema.ts";
export {
  DEFAULT_TOLERANCE_MS,
  type Digest,
  type HandshakeAnswer,
  headerText,
  jsonOf,
  type Provider,
  type SignatureScheme,
} from "./scheme.ts";
export { createProviderCheck, createSignatureCheck, type ProviderCheck, type Refusal } from "./signature.ts";
export { type Covered, covers, formToJson, isForm, parseSignedText, signedTextOf } from "./signedText.ts";

/** An HTTP source (spec, "HTTP source keys"): a route of the HTTP server. */
export const httpSource = { schema: httpSourceSchema } as const;

/** One kind of inbound credentials (spec, "Source auth kinds"), as far as the configuration goes. */
interface AuthKind<A> {
  /** The request headers that it reads; of a bearer token it is known. */
  readonly headers: (auth: A) => readonly string[];
  /** Of a kind that only sources may have: the key to report elsewhere; null for the others. */
  readonly sourcesOnly: (keyof A & string) | null;
  /** Rules over its keys, besides that of one credential or several. @param prefix of the keys, such as `auth.` */
  readonly check?: (prefix: string, auth: A, when: When) => void;
}

const KINDS: { readonly [K in DeclaredAuth["kind"]]: AuthKind<DeclaredAuthOf<K>> } = {
  bearer: { headers: () => [], sourcesOnly: null },
  "api-key": { headers: ({ headerName }) => [headerName], sourcesOnly: null },
  hmac: { headers: ({ headerName }) => [headerName], sourcesOnly: null, check: checkHmac },
  provider: {
    headers: ({ provider }) => signatureHeaders(providerOf(provider)),
    sourcesOnly: "provider",
    check: checkProvider,
  },
  "client-certificate": {
    headers: ({ certificateHeader }) => [certificateHeader],
    sourcesOnly: "certificateHeader",
    check: checkCertificate,
  },
};

function kindOf<A extends DeclaredAuth>({ kind }: A): AuthKind<A> {
  // TypeScript cannot infer that the entry of a kind takes the block of that kind.
  return KINDS[kind] as unknown as AuthKind<A>;
}

export function checkInboundAuth(prefix: string, auth: DeclaredAuth | undefined, when: When): void {
  if (auth === undefined) return;
  const keys = CREDENTIAL_KEYS[auth.kind];
  if (keys !== null) {
    const [one, many] = keys;
    when([`${prefix}${one}`, `${prefix}${many}`], (report) => {
      const both = Object.hasOwn(auth, one) && Object.hasOwn(auth, many);
      if (both) report.error(`${prefix}${one}`, `cannot be combined with ${many}: move it into that list`);
    });
  }
  kindOf(auth).check?.(prefix, auth, when);
}

/**
 * The rules of the admin and pull routes. They have callers of their own, not webhooks; a browser sends a certificate
 * with any request, whichever page makes it; and the signature of a body is that of every request with this body.
 *
 * @param closed the routes that need the signature of the whole request; null when they are off
 */
export function checkCallers(prefix: string, auth: DeclaredAuth | undefined, closed: string | null, when: When): void {
  const sourcesOnly = auth === undefined ? null : kindOf(auth).sourcesOnly;
  const problem = "is for sources: here, use token, key or secret without provider";
  if (sourcesOnly !== null) when([prefix + sourcesOnly], (report) => report.error(prefix + sourcesOnly, problem));
  if (auth?.kind !== "hmac" || closed === null) return;
  const key = prefix + (auth.signedText === undefined ? "signaturePayloadFormat" : "signedText");
  const needed = "{{ timestamp }}, {{ method }}, {{ path }} and {{ body }}, as with timestamp-dot-request";
  when([key], (report) => {
    if (!covers(auth, "request")) report.warning(key, `does not open ${closed}: set it to sign ${needed}`);
  });
}

/** The request headers that a block of credentials reads; of a bearer token it is known. */
export function credentialHeadersOf(auth: DeclaredAuth | undefined): readonly string[] {
  return auth === undefined ? [] : kindOf(auth).headers(auth);
}

function checkCertificate(prefix: string, auth: DeclaredAuthOf<"client-certificate">, when: When): void {
  const keys = ["certificateHeader", "trustedProxies", "fingerprints", "commonNames", "subjectAltNames"];
  when(
    keys.map((key) => prefix + key),
    (report) => {
      for (const [key, problem] of certificateProblems(auth)) report.error(prefix + key, problem);
    },
  );
}

function checkProvider(prefix: string, auth: DeclaredAuthOf<"provider">, when: When): void {
  const names = ["provider", "secret", "secrets", ...NOT_OF_ALL];
  const keys = names.map((key) => prefix + key);
  when(keys, (report) => {
    const provider = providerOf(auth.provider);
    const secrets = secretsOf(auth);
    if (secrets.length === 0) report.error(`${prefix}secret`, `is required: ${provider.secret}`);
    secrets.forEach((secret, index) => {
      const problem = secretProblem(provider, secret);
      const key = auth.secrets === undefined ? "secret" : `secrets.${index}`;
      if (problem !== undefined) report.error(`${prefix}${key}`, problem);
    });
    for (const key of provider.needs ?? []) {
      if (auth[key] === undefined) report.error(`${prefix}${key}`, `is required: ${NEEDED[key](provider.title)}`);
    }
    const used: readonly string[] = [...(provider.needs ?? []), ...(provider.takes ?? [])];
    if (auth.verifyToken !== undefined && auth.verifyTokens !== undefined) {
      report.error(`${prefix}verifyToken`, "cannot be combined with verifyTokens: move it into that list");
    }
    for (const key of NOT_OF_ALL) {
      const isUnused = auth[key] !== undefined && !used.includes(key);
      if (isUnused) report.warning(`${prefix}${key}`, `has no effect with the provider ${auth.provider}: remove it`);
    }
    checkUrl(`${prefix}url`, auth.url, report);
  });
}

/** Keys that some providers use. */
const NOT_OF_ALL = ["url", "webhookId", "verifyToken", "verifyTokens"] as const;

const NEEDED = {
  url: (title: string) => `${title} signs the URL that it calls; give it without the query`,
  webhookId: (title: string) => `${title} signs the id of the webhook`,
} as const;

function checkUrl(key: string, url: string | undefined, report: Report): void {
  if (url !== undefined && /[?#]/.test(url)) {
    report.error(key, "must not contain ? or #: the query of each request is added");
  }
}

const TIME_KEYS = ["timestampHeader", "timestampField"] as const;

function checkHmac(prefix: string, auth: DeclaredAuthOf<"hmac">, when: When): void {
  const { timestampHeader, timestampField, signatureField, signaturePayloadFormat, signedText, url } = auth;
  const hasTime = timestampHeader !== undefined || timestampField !== undefined;
  const keys = (...names: readonly string[]) => names.map((name) => `${prefix}${name}`);
  when(keys(...TIME_KEYS, "signaturePayloadFormat"), (report) => {
    if (hasTime || signaturePayloadFormat === undefined || signaturePayloadFormat.toUpperCase() === "BODY") return;
    const message = `is ${signaturePayloadFormat}, which needs timestampHeader: name the header that brings the time`;
    report.error(`${prefix}signaturePayloadFormat`, message);
  });
  when(keys(...TIME_KEYS, "signatureField", "signaturePrefix"), (report) => {
    if (timestampHeader !== undefined && timestampField !== undefined) {
      report.error(`${prefix}timestampField`, "cannot be combined with timestampHeader: remove one of the two");
    }
    if (timestampField !== undefined && signatureField === undefined) {
      report.error(
        `${prefix}timestampField`,
        "needs signatureField: name the field that holds the signature, such as v1",
      );
    }
    if (signatureField !== undefined && !["", "sha256="].includes(auth.signaturePrefix)) {
      report.warning(`${prefix}signaturePrefix`, "has no effect with signatureField: remove one of the two");
    }
  });
  when(keys(...TIME_KEYS, "signedText", "signaturePayloadFormat", "url"), (report) => {
    if (signedText === undefined) {
      if (url !== undefined) report.warning(`${prefix}url`, "has no effect without {{ url }} in signedText");
    } else {
      checkSignedText(`${prefix}signedText`, signedText, { hasTime, hasUrl: url !== undefined }, report);
      if (signaturePayloadFormat !== undefined) {
        report.error(`${prefix}signaturePayloadFormat`, "cannot be combined with signedText: remove one of the two");
      }
    }
    checkUrl(`${prefix}url`, url, report);
  });
}

function checkSignedText(
  key: string,
  text: string,
  { hasTime, hasUrl }: { readonly hasTime: boolean; readonly hasUrl: boolean },
  report: Report,
): void {
  try {
    parseSignedText(text);
  } catch (error) {
    report.error(key, (error as Error).message);
    return;
  }
  const has = (name: string) => hasPlaceholder(text, name);
  if (!has("body")) report.error(key, "must have {{ body }}: a signature that leaves it out lets any body pass");
  if (has("timestamp") && !hasTime) {
    report.error(key, "has {{ timestamp }}, which needs timestampHeader or timestampField");
  }
  if (has("url") && !hasUrl) report.error(key, "has {{ url }}, which needs url: set it to the URL that senders call");
}

/** Whether a signature covers members of the body, by their paths, and not all of it. */
export const signsMembers = (auth: DeclaredAuth | undefined): boolean =>
  auth?.kind === "provider" && providerOf(auth.provider).schemes.some(({ at }) => "path" in at);

/** The headers that carry the signatures of a provider; none when they are in the body. */
export function signatureHeaders({ schemes }: Provider): readonly string[] {
  // The last scheme is the usual one.
  return schemes.flatMap(({ at }) => ("header" in at ? [at.header] : [])).reverse();
}
