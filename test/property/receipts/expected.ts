import { MAX_BODY_BYTES } from "./bodies.ts";
import { COMPARED_HEADER } from "./headers.ts";

/** Sources of the test, each with its own way to find the idempotency key. */
export const SOURCES = ["member", "whole", "filtered"] as const;
export type SourceName = (typeof SOURCES)[number];

export interface Message {
  readonly source: SourceName;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  /** It does not say how long it is. */
  readonly isChunked: boolean;
}

/** What the documentation says of a message, by the simplest reading of it. */
export type Expected =
  /** 202 for one message of the key, 200 for all others of it. `exact` tells whether no other key has the same text. */
  | { readonly kind: "taken"; readonly key: string; readonly exact: boolean }
  | { readonly kind: "filtered" }
  | { readonly kind: "refused"; readonly status: 400 | 413 | 415; readonly error: RegExp };

export const CONFIGURATION = {
  member: {
    path: "/member",
    idempotencyKeyPath: "$.id",
    aggregateIdPath: "$.key",
    eventTypePath: "$.type",
    topic: "t",
  },
  whole: { path: "/whole", idempotencyKeyPath: "$", topic: "t" },
  filtered: {
    path: "/filtered",
    idempotencyKeyPath: "$.id",
    topic: "t",
    filter: { exclude: [{ header: COMPARED_HEADER, matches: "**!**" }] },
  },
} as const;

const TOO_LARGE = new RegExp(`^Request body exceeds ${MAX_BODY_BYTES} bytes$`);
/** No body of the test is encoded. */
const ENCODINGS: ReadonlySet<string> = new Set(["gzip", "x-gzip", "deflate", "br"]);
const MAX_ATTRIBUTE_LENGTH = 1024;

export function expectedOf({ source, headers, body, isChunked }: Message): Expected {
  // The head has the encoding, and perhaps the length.
  const isTooLarge = body.length > MAX_BODY_BYTES;
  if (isTooLarge && !isChunked) return { kind: "refused", status: 413, error: TOO_LARGE };
  const encoding = headers["content-encoding"]?.trim().toLowerCase() ?? "";
  if (ENCODINGS.has(encoding)) return { kind: "refused", status: 400, error: /^The body does not match/ };
  if (encoding !== "" && encoding !== "identity")
    return { kind: "refused", status: 415, error: /^The Content-Encoding/ };
  if (isTooLarge) return { kind: "refused", status: 413, error: TOO_LARGE };
  if (source === "filtered" && headers[COMPARED_HEADER]?.includes("!")) return { kind: "filtered" };
  const parsed = parse(body);
  if (parsed === undefined) return { kind: "refused", status: 400, error: /^Invalid JSON$/ };
  const { document } = parsed;
  const key = scalar(source === "whole" ? document : member(document, "id"));
  if (key === undefined) return { kind: "refused", status: 400, error: /^no idempotency key at \$/ };
  const attributes = source === "member" ? [member(document, "key"), member(document, "type")].map(scalar) : [];
  if (!attributes.every(isUsable)) return { kind: "refused", status: 400, error: /aggregate id|event type/ };
  return { kind: "taken", key: String(key), exact: typeof key !== "number" };
}

const STRICT_UTF8 = new TextDecoder("utf-8", { fatal: true });

function parse(body: Buffer): { readonly document: unknown } | undefined {
  try {
    return { document: JSON.parse(STRICT_UTF8.decode(body)) };
  } catch {
    return undefined;
  }
}

function member(document: unknown, name: string): unknown {
  if (typeof document !== "object" || document === null || Array.isArray(document)) return undefined;
  return Object.getOwnPropertyDescriptor(document, name)?.value;
}

function scalar(value: unknown): string | number | boolean | undefined {
  if (typeof value === "string") return value === "" ? undefined : value;
  return typeof value === "number" || typeof value === "boolean" ? value : undefined;
}

/** Column and index of an attribute hold no more than this, and no text that is none. */
function isUsable(value: string | number | boolean | undefined): boolean {
  const text = String(value ?? "");
  return text.length <= MAX_ATTRIBUTE_LENGTH && !text.includes("\0") && !/\p{Surrogate}/u.test(text);
}
