import { createHash } from "node:crypto";
import { crc32 } from "node:zlib";
import { LosslessNumber } from "lossless-json";
import type { DeclaredAuthOf } from "./schema.ts";
import { headerText, type SignedRequest, textOf, valueAt } from "./scheme.ts";

/**
 * Templates of signed texts, `v0:{{ timestamp }}:{{ body }}`: bytes come out as received, as the sender signed them.
 */

interface SignedTextInput {
  readonly request: SignedRequest;
  readonly body: Buffer;
  /** The body as `jsonOf` reads it. */
  readonly json: unknown;
  /** As received. */
  readonly timestamp: string | undefined;
  /** The URL that the sender called, with its query. */
  readonly url: string;
  readonly webhookId: string | undefined;
}

/** @returns the pieces of the signed text in order, or why the request has none */
export type SignedText = (input: SignedTextInput) => readonly Buffer[] | string;

type Piece = (input: SignedTextInput) => Buffer | string;

/** Text in a header or URL has one character per byte. */
const bytes = (text: string): Buffer => Buffer.from(text, "latin1");

/** What a template of the configuration may hold. */
const VARIABLES: Readonly<Record<string, Piece>> = {
  method: ({ request }) => bytes(request.method ?? ""),
  url: ({ url }) => bytes(url),
  path: ({ request }) => bytes(request.url ?? ""),
  timestamp: ({ timestamp }) => bytes(timestamp ?? ""),
  body: ({ body }) => body,
};

/** What only the tables of providers use. */
const OF_PROVIDERS: Readonly<Record<string, Piece>> = {
  webhookId: ({ webhookId }) => bytes(webhookId ?? ""),
  crc32: ({ body }) => bytes(String(crc32(body))),
  decodedUrl: ({ url }) => bytes(url.replace(HUBSPOT_ESCAPES, (found) => decodeURIComponent(found))),
  form: sortedForm,
};

/** HubSpot signs the URL with these decoded. */
const HUBSPOT_ESCAPES = /%(?:3A|2F|3F|40|21|24|27|28|29|2A|2C|3B)/gi;

/** By `signaturePayloadFormat`. */
const FORMATS = {
  body: "{{ body }}",
  BODY: "{{ body }}",
  "timestamp-dot-body": "{{ timestamp }}.{{ body }}",
  TIMESTAMP_DOT_BODY: "{{ timestamp }}.{{ body }}",
  "timestamp-dot-request": "{{ timestamp }}.{{ method }}.{{ path }}.{{ body }}",
} as const;

/** The template of what callers sign. */
export function signedTextOf({ signedText, signaturePayloadFormat: format = "BODY" }: DeclaredAuthOf<"hmac">): string {
  return signedText ?? FORMATS[format];
}

export function hasPlaceholder(text: string, name: string): boolean {
  return new RegExp(`\\{\\{\\s*${name}\\s*\\}\\}`).test(text);
}

/** What a signature must cover to open a route: the body (spec, "Source auth kinds"), or all that makes the request. */
export type Covered = keyof typeof PARTS;
const PARTS = { body: ["body"], request: ["timestamp", "method", "path", "body"] };

/** Whether the signatures of callers cover it. */
export function covers(auth: DeclaredAuthOf<"hmac">, covered: Covered): boolean {
  return PARTS[covered].every((name) => hasPlaceholder(signedTextOf(auth), name));
}

const PLACEHOLDER = /\{\{\s*([^{}]*?)\s*\}\}/;

/** Compiles a template of the {@link VARIABLES} and `{{ headers.<name> }}`. @throws Error for an unknown placeholder */
export function parseSignedText(text: string): SignedText {
  return compiled(text, VARIABLES, false);
}

/**
 * {@link parseSignedText} for the tables of providers, which also have a few of their own, and members of the body:
 * `{{ $.path }}` without colons and quotes, `{{ text $.path }}` with any, `{{ number $.path }}` with its digits.
 */
export function parseProviderText(text: string): SignedText {
  return compiled(text, { ...VARIABLES, ...OF_PROVIDERS }, true);
}

function compiled(text: string, variables: Readonly<Record<string, Piece>>, readsBody: boolean): SignedText {
  // With a capturing group, split gives literals and names in turn.
  const pieces = text.split(PLACEHOLDER).flatMap((part, index): Piece[] => {
    if (index % 2 === 1) return [pieceOf(part, variables, readsBody)];
    const literal = Buffer.from(part, "utf8");
    return part === "" ? [] : [() => literal];
  });
  return (input) => {
    const parts: Buffer[] = [];
    for (const piece of pieces) {
      const part = piece(input);
      if (typeof part === "string") return part;
      parts.push(part);
    }
    return parts;
  };
}

function pieceOf(name: string, variables: Readonly<Record<string, Piece>>, readsBody: boolean): Piece {
  const variable = Object.hasOwn(variables, name) ? variables[name] : undefined;
  if (variable !== undefined) return variable;
  const header = /^headers\.([!#$%&'*+.^_`|~0-9A-Za-z-]+)$/.exec(name)?.[1];
  if (header !== undefined) {
    return ({ request }) => {
      const value = headerText(request, header);
      return value === undefined ? `missing ${header} header` : bytes(value);
    };
  }
  const [, type, path] = /^(?:(number|text) )?(\$.*)$/.exec(name) ?? [];
  if (readsBody && path !== undefined) return ({ json }) => memberPiece(valueAt(json, path), type, path);
  const known = `${Object.keys(VARIABLES).join(", ")} and headers.<name>`;
  throw new Error(`has the unknown placeholder {{ ${name} }}; there are ${known}`);
}

/**
 * Only what the sender itself would have written: members of another type, or with the separator, and the pieces of
 * another signed document, could be put together to the same signed text. Nothing, or null, counts as empty.
 */
function memberPiece(value: unknown, type = "text without colons and quotes", path = ""): Buffer | string {
  if (value === undefined || value === null) return Buffer.alloc(0);
  const text = value instanceof LosslessNumber && type === "number" ? value.value : textOf(value);
  const isRight = type === "number" ? text !== value : type === "text" || !/[:"]/.test(text ?? "");
  return text !== undefined && isRight ? Buffer.from(text, "utf8") : `the body at ${path} holds no ${type}`;
}

/** Twilio: the fields of a form, sorted, name and value in turn; any other body is signed by its digest in the URL. */
function sortedForm({ request, body, url }: SignedTextInput): Buffer | string {
  const signed = new URLSearchParams(url.split("?", 2)[1] ?? "").get("bodySHA256");
  // What the URL says is signed, what the content type says is not.
  if (signed === null && isForm(request)) {
    const form = parseForm(body);
    if (typeof form === "string") return form;
    const names = [...form.keys()].sort();
    const fields = names.flatMap((name) => (form.get(name) ?? []).toSorted().map((value) => name + value));
    const text = fields.join("");
    const isCut = /[?&]bodySHA256=[0-9a-f]{64}(?:&|$)/i.test(url + text);
    return isCut ? "the form may be the end of a URL that signs JSON" : Buffer.from(text, "utf8");
  }
  if (signed === null) return "the URL has no bodySHA256, which signs a body that is not a form";
  const digest = createHash("sha256").update(body).digest("hex");
  return signed.toLowerCase() === digest ? Buffer.alloc(0) : "the bodySHA256 in the URL is not the digest of the body";
}

/** The most fields of a form; senders have a few dozen. */
const MOST_FIELDS = 1000;
const AMPERSAND = "&".charCodeAt(0);

/** Whether a request says that its body is a form. */
export function isForm(request: Pick<SignedRequest, "headers">): boolean {
  const type = headerText(request, "content-type") ?? "";
  return type.split(";", 1)[0]?.trim().toLowerCase() === "application/x-www-form-urlencoded";
}

/** Reads a form. @returns the different values of each name in order, or why there are none */
export function parseForm(body: Buffer): ReadonlyMap<string, readonly string[]> | string {
  let fields = 1;
  for (let at = body.indexOf(AMPERSAND); at >= 0; at = body.indexOf(AMPERSAND, at + 1)) {
    fields++;
    if (fields > MOST_FIELDS) return `the form has more than ${MOST_FIELDS} fields`;
  }
  const form = new Map<string, string[]>();
  for (const [name, value] of new URLSearchParams(body.toString("utf8"))) {
    const values = form.get(name);
    if (values === undefined) form.set(name, [value]);
    else if (!values.includes(value)) values.push(value);
  }
  return form;
}

/**
 * A form as JSON bytes, or why there are none: a member for each field, a list if a name is repeated.
 *
 * @param jsonField a field that holds the whole message as JSON; its text is then the result, unchanged
 */
export function formToJson(body: Buffer, jsonField: string | undefined): Buffer | string {
  const form = parseForm(body);
  if (typeof form === "string") return form;
  const json = jsonField === undefined ? undefined : form.get(jsonField);
  if (json?.length === 1) return Buffer.from(json[0] ?? "", "utf8");
  // Assigning a field `__proto__` would set the prototype; fromEntries defines it.
  const members = [...form].map(([name, values]) => [name, values.length === 1 ? values[0] : values] as const);
  return Buffer.from(JSON.stringify(Object.fromEntries(members)), "utf8");
}
