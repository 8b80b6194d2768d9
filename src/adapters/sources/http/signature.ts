import { readKey, type VerifyingKey } from "./keys.ts";
import { providerOf } from "./providers/index.ts";
import { type ProviderAuth, secretsOf } from "./schema.ts";
import {
  type Encoding,
  headerText,
  jsonOf,
  type Provider,
  type SignatureScheme,
  type SignedRequest,
  scalarAt,
  textOf,
  valueAt,
} from "./scheme.ts";
import { parseProviderText, type SignedText } from "./signedText.ts";

/** Verifies signed requests: one verifier for the `hmac` kind and for every provider. */

/** What a scheme needs from the configuration. */
interface SignatureSettings {
  readonly scheme: SignatureScheme;
  readonly signed: SignedText;
  /** A signature of any of them passes: the secret can be changed while both are in use. */
  readonly keys: readonly VerifyingKey[];
  /** Largest difference of the request's time from the clock, in ms. */
  readonly toleranceMs: number;
  /** The URL that the sender calls, without the query. */
  readonly url?: string | undefined;
  readonly webhookId?: string | undefined;
  /** In Unix milliseconds. */
  readonly now: () => number;
}

/** @param body null checks what the headers alone can show */
export type Refusal = (request: SignedRequest, body: Buffer | null) => string | null;

/** More signatures than senders list while they change a secret, few enough to verify. */
const MOST_SIGNATURES = 10;
/** Of a list in the body. */
const MOST_ITEMS = 1000;

/** Makes the check of a scheme, whose refusals name the check and never a credential. */
export function createSignatureCheck(settings: SignatureSettings): Refusal {
  const { scheme, signed, keys, webhookId } = settings;
  const isInBody = "path" in scheme.at || "list" in scheme.at;
  const readsBody = isInBody || (scheme.time !== undefined && "path" in scheme.time.at);
  return (request, body) => {
    const json = body === null ? null : { value: readsBody ? jsonOf(body) : undefined };
    if (isInBody && json?.value === undefined) return json === null ? null : NOT_JSON;
    const found = readSignatures(scheme, request, json);
    if (typeof found === "string") return found;
    const time = readTime(settings, request, json, found.fields);
    if (typeof time === "string") return time;
    const signatures = decoded(found, scheme.encoding);
    if (typeof signatures === "string") return signatures;
    if (body === null || json === null) return null;
    if (scheme.without !== undefined && valueAt(json.value, scheme.without) !== undefined) {
      return `the body has a value at ${scheme.without}, which no signature covers`;
    }
    const right = new Set<Buffer>();
    for (const url of urlsOf(settings, request)) {
      const parts = signed({ request, body, json: json.value, timestamp: time.text, url, webhookId });
      if (typeof parts === "string") return parts;
      for (const key of keys) {
        const matches = key.verifier(parts);
        // Every one is compared: which of them is right takes no other time.
        for (const { version, bytes } of signatures) if (version === key.version && matches(bytes)) right.add(bytes);
      }
    }
    const isRight = "list" in scheme.at ? right.size === signatures.length : right.size > 0;
    return isRight ? null : `the ${scheme.encoding === "text" ? "secret" : "signature"} in ${found.subject} is wrong`;
  };
}

/** The body as {@link jsonOf} reads it; null when only the headers are there. */
type Json = { readonly value: unknown } | null;

const NOT_JSON = "the body is not JSON whose objects name each member once, and so has no signature";

interface Found {
  readonly signatures: readonly { readonly version: VerifyingKey["version"]; readonly text: string }[];
  /** Of a header such as `t=…,v1=…`. */
  readonly fields: ReadonlyMap<string, readonly string[]>;
  /** Their place: `the X-Signature header`. */
  readonly subject: string;
}

const NO_FIELDS: Found["fields"] = new Map();

/** @returns the texts of the signatures, or what is missing */
function readSignatures({ at }: SignatureScheme, request: SignedRequest, json: Json): Found | string {
  if ("path" in at) return inBody(at.path, json?.value);
  if ("list" in at) return inList(at, json?.value);
  const text = headerText(request, at.header);
  if (text === undefined) return `missing ${at.header} header`;
  const subject = `the ${at.header} header`;
  if ("field" in at) {
    const fields = readFields(text, at.separator);
    const values = fields.get(at.field) ?? [];
    if (values.length === 0) return `${subject} has no ${at.field} field`;
    return { signatures: values.map((value) => ({ version: null, text: value })), fields, subject };
  }
  if ("versions" in at) {
    const signatures = text.split(" ").flatMap((each) => {
      const version = /^v1a?(?=,)/.exec(each)?.[0] as "v1" | "v1a" | undefined;
      return version === undefined ? [] : [{ version, text: each.slice(version.length + 1) }];
    });
    if (signatures.length === 0) return `${subject} has no signature of version v1 or v1a`;
    return { signatures, fields: NO_FIELDS, subject };
  }
  const { prefix = "" } = at;
  if (!text.startsWith(prefix)) return `${subject} does not begin with ${JSON.stringify(prefix)}`;
  return { signatures: [{ version: null, text: text.slice(prefix.length) }], fields: NO_FIELDS, subject };
}

function inBody(path: string, document: unknown): Found | string {
  const subject = `the body at ${path}`;
  const text = textOf(valueAt(document, path));
  if (text === undefined) return `no signature in ${subject}`;
  return { fields: NO_FIELDS, subject, signatures: [{ version: null, text }] };
}

function inList({ list, member }: { readonly list: string; readonly member: string }, json: unknown): Found | string {
  const items = valueAt(json, list);
  if (!Array.isArray(items) || items.length === 0) return `no list at ${list} of the body, and so no secret`;
  if (items.length > MOST_ITEMS) return `the list at ${list} has more than ${MOST_ITEMS} items`;
  const texts = items.flatMap((item) => textOf(valueAt(item, member)) ?? []);
  if (texts.length < items.length) return `an item of ${list} has no ${member}`;
  // As a header would bring it: one character per byte.
  const inBytes = (text: string) => Buffer.from(text, "utf8").toString("latin1");
  const signatures = texts.map((text) => ({ version: null, text: inBytes(text) }));
  return { fields: NO_FIELDS, subject: `the body at ${list}[*].${member}`, signatures };
}

/** Reads `t=1,v1=a,v1=b`; blanks around a field do not count. */
function readFields(text: string, separator: string): ReadonlyMap<string, readonly string[]> {
  const fields = new Map<string, string[]>();
  for (const field of text.split(separator)) {
    const equals = field.indexOf("=");
    if (equals < 0) continue;
    const name = field.slice(0, equals).trim();
    const values = fields.get(name);
    if (values === undefined) fields.set(name, [field.slice(equals + 1).trim()]);
    else values.push(field.slice(equals + 1).trim());
  }
  return fields;
}

/** @returns the time as received, undefined without one to check; or why the request is refused */
function readTime(
  { scheme, toleranceMs, now }: SignatureSettings,
  request: SignedRequest,
  json: Json,
  fields: Found["fields"],
): { readonly text: string | undefined } | string {
  const { time, at } = scheme;
  if (time === undefined) return { text: undefined };
  let text: string | undefined;
  let place: string;
  if ("header" in time.at) {
    text = headerText(request, time.at.header);
    place = `the ${time.at.header} header`;
    if (text === undefined) return `missing ${time.at.header} header`;
  } else if ("field" in time.at) {
    const header = `the ${"header" in at ? at.header : ""} header`;
    place = `the ${time.at.field} field of ${header}`;
    text = fields.get(time.at.field)?.[0];
    if (text === undefined) return `${header} has no ${time.at.field} field`;
  } else {
    if (json === null) return { text: undefined };
    place = `the body at ${time.at.path}`;
    text = scalarAt(json.value, time.at.path);
    if (text === undefined) return `no time in ${place}`;
  }
  const ms = READ_TIME[time.unit](text);
  if (ms === undefined) return `${place} is not a time ${UNITS[time.unit]}`;
  if (Math.abs(now() - ms) > toleranceMs) {
    return `the time in ${place} is more than ${toleranceMs} ms away from the clock`;
  }
  return { text };
}

const UNITS = { ms: "in Unix milliseconds", s: "in Unix seconds", iso: "in ISO 8601" } as const;
const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)$/;

const READ_TIME: Readonly<Record<keyof typeof UNITS, (text: string) => number | undefined>> = {
  ms: (text) => (/^\d{1,15}$/.test(text) ? Number(text) : undefined),
  s: (text) => (/^\d{1,12}$/.test(text) ? Number(text) * 1000 : undefined),
  iso(text) {
    const ms = ISO.test(text) ? Date.parse(text) : Number.NaN;
    return Number.isNaN(ms) ? undefined : ms;
  },
};

type Decoded = readonly { readonly version: VerifyingKey["version"]; readonly bytes: Buffer }[];

/** @returns the bytes of the signatures that are in the encoding, or what is wrong when none is */
function decoded({ signatures, subject }: Found, encoding: Encoding): Decoded | string {
  if (encoding !== "text" && signatures.length > MOST_SIGNATURES)
    return `${subject} has more than ${MOST_SIGNATURES} signatures`;
  const readable = signatures.flatMap(({ version, text }) => {
    const bytes = DECODERS[encoding](text);
    return bytes === undefined ? [] : [{ version, bytes }];
  });
  if (readable.length > 0) return readable;
  return `${subject} holds no ${NAMES[encoding]}`;
}

const NAMES = {
  hex: "hexadecimal signature",
  base64: "base64 signature",
  base64url: "base64url signature",
  text: "secret",
} as const;

const DECODERS: Readonly<Record<Encoding, (text: string) => Buffer | undefined>> = {
  hex: (text) => (/^(?:[0-9a-f]{2})+$/i.test(text) ? Buffer.from(text, "hex") : undefined),
  base64: (text) =>
    /^[A-Za-z0-9+/]+={0,2}$/.test(text) && text.length % 4 === 0 ? Buffer.from(text, "base64") : undefined,
  base64url: (text) => (/^[A-Za-z0-9_-]+={0,2}$/.test(text) ? Buffer.from(text, "base64url") : undefined),
  text: (text) => Buffer.from(text, "latin1"),
};

/** The URLs that the sender may have signed. */
function urlsOf({ scheme, url = "" }: SignatureSettings, request: SignedRequest): readonly string[] {
  const query = /\?.*$/s.exec(request.url ?? "")?.[0] ?? "";
  if (scheme.anyPort !== true || !URL.canParse(url)) return [url + query];
  const { protocol, hostname, port, pathname } = new URL(url);
  const standard = protocol === "https:" ? "443" : "80";
  return [
    `${protocol}//${hostname}${pathname}${query}`,
    `${protocol}//${hostname}:${port || standard}${pathname}${query}`,
  ];
}

export interface ProviderCheck {
  readonly refusal: Refusal;
  /** The secret that a request is signed with; undefined for a refused request. */
  readonly secretOf: (request: SignedRequest, body: Buffer) => string | undefined;
}

/** @throws Error for a secret in a form that the provider does not have; the configuration is checked for it */
export function createProviderCheck(auth: ProviderAuth, clock: { now(): number }): ProviderCheck {
  const secrets = secretsOf(auth);
  for (const secret of secrets) {
    const problem = secretProblem(providerOf(auth.provider), secret);
    if (problem !== undefined) throw new Error(problem);
  }
  const refusal = checkWith(auth, secrets, clock);
  const single = secrets.map((secret) => ({ secret, refusal: checkWith(auth, [secret], clock) }));
  return {
    refusal,
    secretOf: (request, body) => single.find((check) => check.refusal(request, body) === null)?.secret,
  };
}

function checkWith(auth: ProviderAuth, secrets: readonly string[], clock: { now(): number }): Refusal {
  const { schemes } = providerOf(auth.provider);
  const checks = schemes.flatMap((scheme: SignatureScheme & { readonly when?: string }) => {
    const keys = secrets.flatMap((secret) => readKey(scheme.key, secret) ?? []);
    if (keys.length === 0) return [];
    const refusal = createSignatureCheck({
      scheme,
      signed: parseProviderText(scheme.signed),
      keys,
      toleranceMs: auth.timestampTolerance,
      url: auth.url,
      webhookId: auth.webhookId,
      now: () => clock.now(),
    });
    return [{ when: scheme.when, refusal }];
  });
  return (request, body) => {
    const chosen = checks.find(({ when }) => when === undefined || headerText(request, when) !== undefined);
    const check = chosen ?? checks.at(-1);
    return check === undefined ? "no secret fits this request" : check.refusal(request, body);
  };
}

/** What is wrong with the form of a secret; undefined when a scheme of the provider takes it. */
export function secretProblem(provider: Provider, secret: string): string | undefined {
  try {
    if (provider.schemes.some(({ key }) => readKey(key, secret) !== undefined)) return undefined;
    return `expected ${provider.secret}`;
  } catch (error) {
    return (error as Error).message;
  }
}
