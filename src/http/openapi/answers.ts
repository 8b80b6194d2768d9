import { groupBy } from "../../model/collections.ts";
import { exampleOf, list, named, object, type Schema, TEXT, text, UUID, withIgnored } from "../../model/described.ts";
import type { Access } from "../credentials.ts";
import { ACCEPTED_ENCODINGS, ERRORS, tooLargeMessage } from "../exchange.ts";
import type { ApiResponse, Content, Examples, Parameter, ResponseHeaders } from "./types.ts";

/** One route in the OpenAPI document; the rest follows from the route table. */
export interface RouteDescription {
  readonly summary: string;
  readonly description: string;
  /** Another spelling of a path: the document leaves it out. */
  readonly isAlias?: true;
  /** Absent: callers need no credentials. */
  readonly access?: Access | undefined;
  /** Besides those of the credentials. */
  readonly parameters?: readonly Parameter[];
  readonly body?: RequestBody | undefined;
  /** Without those to wrong credentials, of every route with a body ({@link bodyAnswers}), and of its port. */
  readonly answers: readonly Answer[];
  /** The form of its errors; by default `{"error": ...}`. */
  readonly error?: typeof error;
}

interface RequestBody {
  readonly isOptional?: boolean;
  readonly schema: Schema;
  readonly examples?: Examples;
  /** Absent: it says how large the body may be. */
  readonly description?: string;
  /** The route's own cap, below that of its port. */
  readonly maxBytes?: number;
}

/** With cells it names the failed ones, and says what was done in the others. */
const STORAGE_FAILURE: Schema = {
  anyOf: [
    { const: ERRORS.storageFailed },
    { type: "string", pattern: "^The (cells?|operation failed in the cells?) " },
  ],
};
const fixedError = (message: string): Schema => object({ error: { const: message } });

/** Of several messages in one request. */
const RECEIPTS = list(
  object({ status: { type: "integer", enum: [200, 202, 400, 422, 424, 500, 503] }, body: { type: "object" } }),
  "For each message, in order, what it would have got alone; 424: another one was refused, with `batch.atomic`.",
);

/** The schemas that several operations share; the bodies of the answers are those of the specification's tables. */
const SCHEMAS = {
  Batch: object({ items: RECEIPTS }),
  BatchRefused: object({ error: TEXT, items: RECEIPTS }),
  Error: object({ error: text("What is wrong, for the caller.") }),
  BodyTooLarge: object({ error: { type: "string", pattern: "^Request body exceeds [0-9]+ bytes$" } }),
  InternalError: fixedError(ERRORS.internal),
  InvalidRequest: object({
    error: { type: "string", pattern: "^(Invalid request: |A replay needs at least one filter|The body does not)" },
  }),
  ShuttingDown: fixedError(ERRORS.shuttingDown),
  StorageFailed: object({ error: STORAGE_FAILURE }),
  TooManyBodies: fixedError(ERRORS.overloaded),
  TransformUnavailable: fixedError(ERRORS.transformUnavailable),
  UnsupportedEncoding: fixedError(ERRORS.unsupportedEncoding),
  Stored: object({ messageId: { ...UUID, description: "The `id` of the new inbox row." } }),
  Filtered: object({ status: { const: "filtered" } }),
  Duplicate: object({ status: { const: "duplicate" } }),
} as const satisfies Readonly<Record<string, Schema>>;

type SchemaName = keyof typeof SCHEMAS;

const ref = (name: SchemaName): Schema => named(name, SCHEMAS[name]);

export const inPath = (name: string, description: string, schema: Schema): Parameter => ({
  name,
  in: "path",
  required: true,
  description,
  schema,
});

/** One answer of a route; a status may have several. */
export type Answer = readonly [status: number, response: ApiResponse];

/** An answer with a body. @param example by default that of the schema */
export function json(
  status: number,
  description: string,
  schema: SchemaName | Schema,
  example?: unknown,
  headers?: ResponseHeaders,
): Answer {
  const described = typeof schema === "string" ? ref(schema) : schema;
  const content = jsonContent(described, { example: { value: example ?? exampleOf(described) } });
  return [status, headers === undefined ? { description, content } : { description, content, headers }];
}

/** Answers to a request, whose unknown fields the answer 200 names. */
export const namingIgnored = (answers: readonly Answer[]): readonly Answer[] =>
  answers.map(([status, response]) => {
    const body = response.content?.["application/json"];
    if (status !== 200 || body === undefined) return [status, response];
    return [status, { ...response, content: jsonContent(withIgnored(body.schema), body.examples) }];
  });

export function jsonContent(schema: Schema, examples: Examples = {}): Content {
  return { "application/json": { schema, examples } };
}

export const plain = (description: string, mediaType: string, schema: Schema = { type: "string" }): Answer => [
  200,
  { description, content: { [mediaType]: { schema } } },
];

/** An answer `{"error": ...}`. */
export function error(
  status: number,
  description: string,
  message: string,
  schema: SchemaName = "Error",
  headers?: ResponseHeaders,
): Answer {
  return json(status, description, schema, { error: message }, headers);
}

export const header = (name: string, description: string, schema: Schema): ResponseHeaders => ({
  [name]: { description, required: true, schema },
});
export const RETRY_AFTER = header("Retry-After", "Seconds until a retry.", { type: "integer", minimum: 1 });
const ENCODINGS = header("Accept-Encoding", "The supported encodings.", { enum: [ACCEPTED_ENCODINGS, "identity"] });

export const TOO_MANY_READS = error(503, "Too many requests of operators wait.", ERRORS.tooManyReads);

export const STORAGE_FAILED = error(500, "The database failed: try again.", ERRORS.storageFailed, "StorageFailed");

export const invalidBody = (reason: string, errorAnswer = error): Answer =>
  errorAnswer(400, "The body is not a valid request.", `Invalid request: ${reason}`, "InvalidRequest");
const INVALID_QUERY = error(
  400,
  "A query parameter is not valid.",
  'Invalid request: the query parameter "limit": ...',
  "InvalidRequest",
);

export const NO_PAGE = error(404, "The cursor is not that of a page.", ERRORS.noCursor);

export const queried = (answer: Answer, ...refusals: readonly Answer[]): readonly Answer[] => [
  answer,
  INVALID_QUERY,
  ...refusals,
  STORAGE_FAILED,
];

/**
 * The answers to a change in batches that was interrupted.
 *
 * @param done how many rows were changed before
 * @param optional members that may be absent
 */
export function interrupted(
  member: "moved" | "changed",
  done: Schema,
  optional: Readonly<Record<string, Schema>> = {},
): readonly Answer[] {
  const answer = (status: number, cause: string, message: string, reason: Schema): Answer =>
    json(status, cause, object({ error: [reason, message], [member]: [done, 2000] }, {}, optional));
  const { storageFailed, shuttingDown } = ERRORS;
  return [
    answer(500, "The database failed.", storageFailed, STORAGE_FAILURE),
    answer(503, "The service stopped before the change was complete.", shuttingDown, { const: shuttingDown }),
  ];
}

/** The answer to a body above a cap. */
function tooLarge(maxBytes: number, errorAnswer = error): Answer {
  return errorAnswer(413, `The body is larger than ${maxBytes} bytes.`, tooLargeMessage(maxBytes), "BodyTooLarge");
}

/** The answer to wrong or missing credentials; none where callers need no credentials. */
export function unauthorized(access: Access | undefined, errorAnswer = error): readonly Answer[] {
  const description = "The credentials are wrong or missing; the reason names the check, never a credential.";
  if (access === undefined) return [];
  const challenge = header("WWW-Authenticate", "Scheme of the expected credentials.", { enum: access.challenges });
  return [errorAnswer(401, description, "missing Authorization header", "Error", challenge)];
}

/** The answers of every route that reads a body; see `admit`. @param maxBytes the route's own cap */
export function bodyAnswers(maxBytes: number | undefined, errorAnswer = error): readonly Answer[] {
  const { undecodable, unsupportedEncoding, overloaded } = ERRORS;
  return [
    errorAnswer(400, "The Content-Encoding does not match the body.", undecodable, "InvalidRequest"),
    ...(maxBytes === undefined ? [] : [tooLarge(maxBytes, errorAnswer)]),
    errorAnswer(415, "Unsupported Content-Encoding.", unsupportedEncoding, "UnsupportedEncoding", ENCODINGS),
    errorAnswer(503, "Too many unfinished bodies are held.", overloaded, "TooManyBodies", RETRY_AFTER),
  ];
}

/**
 * The answers of every route of a port: before it reads the request, and after an internal error.
 *
 * @param maxBodyBytes cap of every body on the port; null without one
 */
export function portAnswers(maxBodyBytes: number | null): readonly Answer[] {
  const shuttingDown = "The service is shutting down: send the request again; another replica takes it.";
  return [
    ...(maxBodyBytes === null ? [] : [tooLarge(maxBodyBytes)]),
    error(500, "Internal error; see the log.", ERRORS.internal, "InternalError"),
    error(503, shuttingDown, ERRORS.shuttingDown, "ShuttingDown"),
  ];
}
/** Answers by status; answers of one status become one response with every body and header of them. */
export function responses(answers: readonly Answer[]): Readonly<Record<string, ApiResponse>> {
  const byStatus = groupBy(answers, ([status]) => status);
  return Object.fromEntries(
    [...byStatus].map(([status, cases]) => [String(status), merged(cases.map(([, response]) => response))]),
  );
}

function merged(cases: readonly ApiResponse[]): ApiResponse {
  const [only] = cases;
  if (cases.length === 1 && only !== undefined) return only;
  const headers = new Map(cases.flatMap((each) => Object.entries(each.headers ?? {})));
  const inEach = (name: string): boolean => cases.every((each) => each.headers?.[name]?.required === true);
  return {
    description: cases.map(({ description }) => description).join(" Or: "),
    headers: Object.fromEntries([...headers].map(([name, header]) => [name, { ...header, required: inEach(name) }])),
    content: mergedContent(cases),
  };
}

function mergedContent(cases: readonly ApiResponse[]): Content {
  const mediaTypes = new Set(cases.flatMap(({ content = {} }) => Object.keys(content)));
  return Object.fromEntries(
    Array.from(mediaTypes, (mediaType) => {
      const bodies = cases.flatMap(({ description, content }) => {
        const body = content?.[mediaType];
        return body === undefined ? [] : [{ summary: description, ...body }];
      });
      const schemas = new Map(bodies.map(({ schema }) => [JSON.stringify(schema), schema]));
      const [first = {}] = schemas.values();
      const values = bodies.flatMap(({ summary, examples = {} }) =>
        Object.values(examples).map(({ value }) => ({ summary, value })),
      );
      const examples = Object.fromEntries(values.map((example, n) => [`example${n + 1}`, example]));
      return [mediaType, { schema: schemas.size === 1 ? first : { anyOf: [...schemas.values()] }, examples }];
    }),
  );
}
