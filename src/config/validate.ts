import { isIP } from "node:net";
import { Ajv, type ErrorObject } from "ajv";
import type { DataValidateFunction, DataValidationCxt } from "ajv/dist/types/index.js";
import { hasDotSegment, parseAddressTemplate, parseRoutingKeyTemplate, topicParts } from "../core/delivery/template.ts";
import { parseJsonPath } from "../core/receipt/jsonPath.ts";
import { parseListPath } from "../core/receipt/requestBatch.ts";
import { compileExpression } from "../core/transform/expression.ts";
import type { SchemaNode, Syntax } from "../model/schema.ts";
import { HTTP_HEADER_NAME, parseDuration } from "../model/text.ts";
import { compileTopicPattern } from "../model/topicPattern.ts";
import { TRACE_ID_PLACEHOLDER } from "../model/traceContext.ts";
import { formatKeyPath, type KeyPath } from "./keyPath.ts";
import { didYouMean, nearestName } from "./kinds.ts";
import { found } from "./mask.ts";
import { configSchema } from "./schema/index.ts";
import type { Finding } from "./shape.ts";

/** Timers of Node.js count in 32 bits: a longer wait would end at once. */
export const MAX_MS = 2 ** 31 - 1;

const KEYWORDS = {
  unit: { schemaType: "string", type: "number", validate: (_: "ms", ms: number) => ms <= MAX_MS },
  duration: {
    schemaType: "boolean",
    type: "string",
    validate: (_: true, text: string) => parseDuration(text) !== undefined,
  },
  syntax: {
    schemaType: "string",
    type: "string",
    validate: (syntax: Syntax, text: string) => syntaxError(syntax, text) === undefined,
  },
} as const;

/** Only the start needs it, and its code generator holds 5 MB: it stays for as long as the collector likes. */
let made: WeakRef<Ajv> | undefined;

function validator(): Ajv {
  const known = made?.deref();
  if (known !== undefined) return known;
  const ajv = makeValidator();
  made = new WeakRef(ajv);
  return ajv;
}

function makeValidator(): Ajv {
  const ajv = new Ajv({
    strict: true,
    strictRequired: false,
    allErrors: true,
    useDefaults: true,
    verbose: true,
    // A configuration is validated once: optimizing the validator took longer than it runs.
    code: { optimize: false },
  });
  ajv.addVocabulary(["secret", "url", "defaultText", "requiredAny", "whole", "orCount", "orKey"]);
  for (const [keyword, definition] of Object.entries(KEYWORDS)) ajv.addKeyword({ keyword, ...definition });
  ajv.addKeyword({
    keyword: "kinds",
    schemaType: "object",
    // The member's errors have their places already.
    errors: "full",
    compile(kinds: Readonly<Record<string, SchemaNode>>, _parent, it) {
      const validate: DataValidateFunction = (data: { readonly kind: string }, context?: DataValidationCxt) => {
        // Only the kinds that are configured are compiled, each once.
        const schema = Object.hasOwn(kinds, data.kind) ? kinds[data.kind] : undefined;
        const member = schema && it.self.compile(schema);
        const valid = member?.(data, context) === true;
        validate.errors = member?.errors ?? [];
        return valid;
      };
      return validate;
    },
  });
  return ajv;
}

/**
 * Validates the shaped configuration and fills in the defaults.
 *
 * @param data from `shape`; changed in place
 * @param unknownKeys key paths that the schema does not know: one of them may be the misspelt name of a required key
 * @returns every problem of a single value, in the order of the schema
 */
export function validate(data: object, unknownKeys: readonly KeyPath[]): Finding[] {
  // Compiled at the first call: a command without a configuration does not wait for it.
  const validateConfig = validator().compile(configSchema);
  validateConfig(data);
  return (validateConfig.errors ?? [])
    .filter((error) => error.keyword !== "kinds")
    .map((error) => explain(error, data, unknownKeys));
}

function explain(error: ErrorObject, root: object, unknownKeys: readonly KeyPath[]): Finding {
  const path = pathOf(error.instancePath, root);
  const schema = (error.parentSchema ?? {}) as SchemaNode;
  if (error.keyword === "required") {
    const missing = String(error.params.missingProperty);
    const purpose = firstSentence(schema.properties?.[missing]?.description ?? "");
    const neighbours = unknownKeys.filter((key) => formatKeyPath(key.slice(0, -1)) === formatKeyPath(path));
    const misspelt = nearestName(
      missing,
      neighbours.map((key) => String(key.at(-1))),
    );
    const hint = misspelt === undefined ? "" : ` Is "${misspelt}" meant to be "${missing}"?`;
    return { path: [...path, missing], message: `is required: ${purpose}${hint}` };
  }
  if (error.keyword === "minItems") return { path, message: "must not be an empty list" };
  if (error.keyword === "maxItems") return { path, message: `must not have more than ${schema.maxItems} items` };
  if (error.keyword === "minLength")
    return { path, message: "must not be empty: any caller could send an empty credential" };
  // Not error.data: for an error inside a kind it is the whole entry.
  const data = valueAt(root, path);
  const what = found(schema, path.at(-1), data);
  if (error.keyword === "syntax" && schema.syntax !== undefined) {
    // The only text may have been written without a list.
    const holder = valueAt(root, path.slice(0, -1));
    const isOnly = schema.whole === true && Array.isArray(holder) && holder.length === 1;
    const message = `${syntaxError(schema.syntax, String(data))}; found ${what}`;
    return { path: isOnly ? path.slice(0, -1) : path, message };
  }
  const nearest = schema.enum !== undefined && typeof data === "string" ? didYouMean(data, schema.enum) : "";
  return { path, message: `expected ${expectation(schema)}, found ${what}${nearest}` };
}

/** What a value of a schema is, in words: `a whole number from 1 to 65535`, `one of push, pull`. */
function expectation(schema: SchemaNode): string {
  if (schema.enum !== undefined) return `one of ${schema.enum.join(", ")} (in this letter case)`;
  if (schema.duration === true) return "a whole number and one of the suffixes s, m, h, d, such as 30d";
  switch (schema.type) {
    case "integer":
      return `a whole number${schema.unit === "ms" ? " of milliseconds" : ""}${limits(schema)}`;
    case "number":
      return `a number${numberLimits(schema)}`;
    case "boolean":
      return "true or false";
    case "array":
      return "a list";
    case "object":
      return "a mapping of keys";
    default:
      return "text";
  }
}

function limits(schema: SchemaNode): string {
  const least = schema.exclusiveMinimum === undefined ? schema.minimum : schema.exclusiveMinimum + 1;
  const most = schema.maximum ?? (schema.unit === "ms" ? MAX_MS : undefined);
  if (least === undefined) return most === undefined ? "" : ` up to ${most}`;
  return most === undefined ? ` from ${least}` : ` from ${least} to ${most}`;
}

function numberLimits({ minimum, exclusiveMinimum, maximum }: SchemaNode): string {
  const above = exclusiveMinimum === undefined ? "" : ` above ${exclusiveMinimum}`;
  const from = minimum === undefined ? "" : ` from ${minimum}`;
  return `${above}${from}${maximum === undefined ? "" : ` up to ${maximum}`}`;
}

/** A JSON pointer as a key path; the data tells list indexes from names. */
function pathOf(pointer: string, root: object): KeyPath {
  const path: (string | number)[] = [];
  let holder: unknown = root;
  for (const part of pointer.split("/").slice(1)) {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    path.push(Array.isArray(holder) ? Number(name) : name);
    holder = (holder as Record<string, unknown> | undefined)?.[name];
  }
  return path;
}

function valueAt(root: unknown, path: KeyPath): unknown {
  return path.reduce<unknown>((holder, step) => (holder as Record<string | number, unknown> | undefined)?.[step], root);
}

function firstSentence(text: string): string {
  return text.split(/(?<=\.)\s/, 1)[0] ?? text;
}

/** Gives what is wrong with a text, for the end of a sentence; undefined when nothing is. */
type SyntaxCheck = (text: string) => string | undefined;

const CHECKS: Readonly<Record<Syntax, SyntaxCheck>> = {
  notBlank: (text) => (text.trim() === "" ? "must not be blank" : undefined),
  identifier: pattern(/^[A-Za-z_][A-Za-z0-9_]*$/, "a letter or _ first, then letters, digits and _"),
  bindAddress,
  captureName: pattern(
    /^[a-z][a-z0-9_]{0,62}$/,
    "lower-case letters, digits and _, a letter first, at most 63 characters",
  ),
  headerName: pattern(HTTP_HEADER_NAME, "a header name without spaces and colons"),
  httpUrl,
  traceUrl,
  proxy,
  urlPath,
  pathTemplate,
  jsonPath: parsed("is not a definite JSONPath", parseJsonPath),
  listPath: parsed("is not a path to a list", parseListPath),
  topicPattern: parsed("is not a topic pattern", compileTopicPattern),
  topicTemplate: parsed("is not a topic template", (text) => topicParts(text, "")),
  address: parsed("is not an address template", parseAddressTemplate),
  routingKey: parsed("is not a routing key template", parseRoutingKeyTemplate),
  expression: parsed("does not compile", compileExpression),
};

/**
 * Checks the text of one value.
 *
 * @returns what is wrong, without the value itself (it may hold a password); undefined when nothing is
 */
export function syntaxError(syntax: Syntax, text: string): string | undefined {
  return CHECKS[syntax](text);
}

function pattern(expression: RegExp, expected: string): SyntaxCheck {
  return (text) => (expression.test(text) ? undefined : `expected ${expected}`);
}

function parsed(what: string, parse: (text: string) => unknown): SyntaxCheck {
  return (text) => {
    try {
      parse(text);
      return undefined;
    } catch (error) {
      return `${what}: ${(error as Error).message}`;
    }
  };
}

/** What a server can listen on: an IP address, of IPv6 in brackets or without, or a host name. */
function bindAddress(text: string): string | undefined {
  const bare = text.startsWith("[") && text.endsWith("]") ? text.slice(1, -1) : text;
  if (isIP(bare) !== 0 || (bare === text && /^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$/.test(text))) return undefined;
  return "expected an IP address or a host name to listen on, without a port, such as 127.0.0.1 or ::1";
}

/** Spec, "HTTP destination": an absolute http or https URL with a host and without user name or password. */
function httpUrl(text: string): string | undefined {
  const expected = "expected an absolute URL such as https://api.example.com";
  // The URL parser would repair `http:/host` and trim spaces; what is sent should be what is written.
  if (!/^https?:\/\/[^/\\\s]/i.test(text) || /\s/.test(text) || !URL.canParse(text)) return expected;
  const url = new URL(text);
  if (url.username !== "" || url.password !== "") {
    return "must hold no user name or password: put credentials into an auth block";
  }
  return url.hostname === "" ? expected : undefined;
}

function traceUrl(text: string): string | undefined {
  const filled = text.replace(TRACE_ID_PLACEHOLDER, "0");
  if (filled !== text) return httpUrl(filled);
  return "expected a URL with {{ traceId }} in it, such as http://localhost:16686/trace/{{ traceId }}";
}

/** The URL of a proxy, which may have a user name and password, or `none`. */
function proxy(text: string): string | undefined {
  const isUrl = /^https?:\/\/[^/\\\s]/i.test(text) && !/\s/.test(text) && URL.canParse(text);
  if (text === "none" || (isUrl && /^\/?$/.test(new URL(text).pathname + new URL(text).search))) return undefined;
  return "expected a URL without a path, such as http://proxy.internal:3128, or none";
}

/** Spec, "HTTP destination": no `.` or `..` segment in any notation, since a URL parser would take it for one. */
function urlPath(text: string): string | undefined {
  if (hasDotSegment(text)) return 'must hold no "." or ".." segment';
  return /[\s\p{Cc}]/u.test(text) ? "must hold no blank: percent-encode it as %20" : undefined;
}

/** A path that may have the placeholders of an address; a value stands for at least one character. */
function pathTemplate(text: string): string | undefined {
  return parsed("is not a path", parseAddressTemplate)(text) ?? urlPath(text.replace(/\{\{[^{}]*\}\}/g, "v"));
}
