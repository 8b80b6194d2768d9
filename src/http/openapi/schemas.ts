import { ERRORS } from "../exchange.ts";
import { NUMBERS } from "../pull/requests.ts";
import type { Schema } from "./types.ts";

/** Further keywords of a schema; a text is its description. */
type Keywords = Schema | string;
const keywords = (further: Keywords): Schema => (typeof further === "string" ? { description: further } : further);

/** The members of an object: of each its schema, or its schema and an example of its value. */
type Members = Readonly<Record<string, Schema | WithExample>>;
type WithExample = readonly [Schema, example: unknown];
const hasExample = (member: Schema | WithExample): member is WithExample => Array.isArray(member);

/** Of a schema: an example of its values. As a symbol it does not get into the document, which is JSON. */
const EXAMPLE = Symbol("example");

/** An example of the values of a schema, put together from those of its members; undefined where they have none. */
export function exampleOf(schema: Schema & { readonly [EXAMPLE]?: unknown }): unknown {
  if (EXAMPLE in schema) return schema[EXAMPLE];
  if ("const" in schema) return schema.const;
  if (schema.type === "array") return [exampleOf(schema.items as Schema)].filter((item) => item !== undefined);
  return Array.isArray(schema.type) && schema.type.includes("null") ? null : undefined;
}

/** An object that has these members, and may have further ones. */
export function openObject(members: Members, required: readonly string[], further: Keywords = {}): Schema {
  const of = <T>(each: (member: Schema | WithExample) => T): Readonly<Record<string, T>> =>
    Object.fromEntries(Object.entries(members).map(([name, member]) => [name, each(member)]));
  return {
    type: "object",
    ...(required.length === 0 ? {} : { required }),
    properties: of((member) => (hasExample(member) ? member[0] : member)),
    ...keywords(further),
    [EXAMPLE]: of((member) => (hasExample(member) ? member[1] : exampleOf(member))),
  };
}

/** An object with exactly these members. */
export function object(members: Members, further: Keywords = {}): Schema {
  return openObject(members, Object.keys(members), { additionalProperties: false, ...keywords(further) });
}

/** A thing that is in one cell; without cells that is not said. */
export function inCell(members: Members): Schema {
  return object(
    { ...members, cell: [text("With cells: the one that has it."), undefined] },
    { required: Object.keys(members) },
  );
}

/** What a change of rows has done: also which rows the database left as they are. */
export function changeResult(members: Members): Schema {
  const rows = list(
    object({ id: UUID, reason: text("Of the trigger, rule, constraint or lock that holds it.") }),
    "A few.",
  );
  const left = object(
    { count: count("How many."), rows },
    { description: "Rows that the database left as they are; absent without any." },
  );
  return object({ ...members, left: [left, undefined] }, { required: Object.keys(members) });
}

/** An answer from all cells. @param further what may be absent too */
export function fromCells(members: Members, further: Members = {}): Schema {
  const missingCells = list(TEXT, "With cells: those that did not answer. What they have is missing here.");
  return object(
    { ...members, ...further, missingCells: [missingCells, undefined] },
    { required: Object.keys(members) },
  );
}

/** A request body: members that are not listed are ignored, and null counts as absent. */
export function request(members: Members, required: readonly string[] = [], further: Schema = {}): Schema {
  const description = "Unknown fields are ignored; null counts as absent.";
  return openObject(members, required, { description, ...further });
}

export function list(items: Schema, further: Keywords = {}): Schema {
  return { type: "array", items, ...keywords(further) };
}

/** A value of this type, or null. */
export function nullable(type: string, further: Keywords = {}): Schema {
  return { type: [type, "null"], ...keywords(further) };
}

/** A value that this schema describes, or null. */
export function orNull(schema: Schema, further: Keywords = {}): Schema {
  return { anyOf: [schema, { type: "null" }], ...keywords(further), [EXAMPLE]: exampleOf(schema) };
}

export const text = (description: string): Schema => ({ type: "string", description });
export const integer = (description: string): Schema => ({ type: "integer", description });
export const bool = (description: string): Schema => ({ type: "boolean", description });
/** A whole number from 0. */
export const count = (description: string): Schema => ({ type: "integer", minimum: 0, description });
export const countOrNull = (description: string): Schema => nullable("integer", { minimum: 0, description });
/** A whole number from 1. */
export const upTo = (maximum: number): Schema => ({ type: "integer", minimum: 1, maximum });
export const TEXT: Schema = { type: "string" };
export const TEXT_OR_NULL = nullable("string");
export const TIME: Schema = { type: "string", format: "date-time" };
export const TIME_OR_NULL = nullable("string", { format: "date-time" });
export const UUID: Schema = { type: "string", format: "uuid" };
/** Text that every database can hold. */
export const STORABLE: Schema = { type: "string", pattern: "^[^\\u0000]*$" };

/** With cells it names those that failed, and says what was done in the others. */
export const STORAGE_FAILURE: Schema = {
  anyOf: [
    { const: ERRORS.storageFailed },
    { type: "string", pattern: "^The (cells?|operation failed in the cells?) " },
  ],
};
const fixedError = (message: string): Schema => object({ error: { const: message } });
const { pattern } = STORABLE;
const CREATED = { format: "date-time" };

export const INBOX = {
  inbox: nullable(
    "boolean",
    "Dead inbox rows, not finished outbox rows; goes with `ids`, `source`, `state` and the instants.",
  ),
};
export const REPLAY_FILTERS = {
  source: nullable("string", { pattern, description: "Only inbox rows of this source." }),
  state: nullable("string", { enum: ["sent", "dead", null], description: "Only delivered rows, or only dead ones." }),
  ids: nullable("array", { items: UUID, description: "Only these rows." }),
  topic: nullable("string", { pattern, description: "Only rows with this topic." }),
  topics: nullable("array", { items: STORABLE, description: "Only rows with one of these topics." }),
  destination: nullable(
    "string",
    "Only rows that go to this destination: by the first route that matches, or since an earlier replay.",
  ),
  createdAfter: nullable("string", { ...CREATED, description: "Only rows created after this instant." }),
  createdBefore: nullable("string", { ...CREATED, description: "Only rows created before this instant." }),
};

const NULL = { type: "null" };
const OF_BOTH = ["state", "ids", "createdAfter", "createdBefore"];
const someOf = (names: readonly string[], fitting: Readonly<Record<string, Schema>>, required: readonly string[]) =>
  names.map((name) => ({
    required: [...required, name],
    properties: { ...fitting, [name]: { ...fitting[name], not: NULL } },
  }));

/**
 * Of `anyOf`: one of the filters at least, and none that does not go with the table.
 *
 * @param inInbox what a request on the inbox has besides
 */
export const someFilter = (inInbox: Readonly<Record<string, Schema>> = {}) => [
  ...someOf([...OF_BOTH, "topic", "topics", "destination"], { inbox: { enum: [false, null] }, source: NULL }, []),
  ...someOf(
    [...OF_BOTH, "source"],
    {
      ...{ ...inInbox, inbox: { const: true }, state: { enum: ["dead", null] } },
      ...{ topic: NULL, topics: NULL, destination: NULL, toDestination: NULL, perSecond: NULL },
    },
    ["inbox", ...Object.keys(inInbox)],
  ),
];

/** A number of a pull request. */
function number(name: keyof typeof NUMBERS, description: string): Schema {
  const { from, to, fallback } = NUMBERS[name];
  return nullable("integer", { minimum: from, maximum: to, default: fallback, description });
}

const CLAIM_REFERENCE = {
  claimToken: { ...UUID, description: "The token that the claim returned." },
  ids: nullable("array", { items: UUID, minItems: 1, description: "Messages of the claim; all of them when absent." }),
};
/** Named messages by what became of them, and an answer 409 that has the same lists. */
const outcome = (...lists: readonly string[]) => ({
  ...Object.fromEntries(lists.map((name) => [name, list(UUID)])),
  lost: list(UUID, "Messages that were named and are no longer held."),
});
const nothingHeld = (members: Members): Schema => object({ error: TEXT, ...members });
const [ACKNOWLEDGED, GIVEN_BACK] = [outcome("acknowledged"), outcome("retried", "dead", "released")];
const EXTENDED = outcome("extended");

/** Of several messages in one request. */
const RECEIPTS = list(
  object({ status: { type: "integer", enum: [200, 202, 400, 422, 424, 500, 503] }, body: { type: "object" } }),
  "For each message, in order, what it would have got alone; 424: another one was refused, with `batch.atomic`.",
);

/** The schemas that several operations share; the bodies of the answers are those of the specification's tables. */
export const SCHEMAS = {
  Batch: object({ items: RECEIPTS }),
  BatchRefused: object({ error: TEXT, items: RECEIPTS }),
  Error: object({ error: text("What is wrong, for the caller.") }),
  BodyTooLarge: object({ error: { type: "string", pattern: "^Request body exceeds [0-9]+ bytes$" } }),
  InternalError: fixedError(ERRORS.internal),
  InvalidRequest: object({
    error: { type: "string", pattern: "^(Invalid request: |A replay needs at least one filter|The body is not what)" },
  }),
  ShuttingDown: fixedError(ERRORS.shuttingDown),
  StorageFailed: object({ error: STORAGE_FAILURE }),
  TooManyBodies: fixedError(ERRORS.overloaded),
  TransformUnavailable: fixedError(ERRORS.transformUnavailable),
  UnsupportedEncoding: fixedError(ERRORS.unsupportedEncoding),
  Stored: object({ messageId: { ...UUID, description: "The `id` of the new inbox row." } }),
  Filtered: object({ status: { const: "filtered" } }),
  Duplicate: object({ status: { const: "duplicate" } }),
  Liveness: object({
    status: { const: "healthy" },
    components: object({ process: object({ status: { const: "up" } }) }),
  }),
  Readiness: object({
    status: { enum: ["healthy", "unhealthy"] },
    components: {
      type: "object",
      description: "Every component of this process by name.",
      additionalProperties: object({ status: { enum: ["up", "down"] } }),
    },
  }),
  TransformTestRequest: request(
    {
      expression: text("A JSONata expression."),
      payload: { description: "The input document `$`: any JSON value." },
      mockTopic: nullable("string", { default: "test.topic", description: "Value of `$topic`." }),
      mockSource: nullable("string", "Value of `$source`; unbound when absent."),
      timeoutMs: nullable("integer", {
        minimum: 1,
        default: 100,
        description: "Longest evaluation in ms, at most `admin.maxTransformTimeoutMs`.",
      }),
    },
    ["expression", "payload"],
  ),
  TransformTestResult: object({
    success: { const: true },
    result: [{ description: "The result of the expression: any JSON value." }, { id: 7, total: 5 }],
    context: object(
      {
        messageId: [{ ...UUID, description: "Random." }, "6f1c8a52-3b0d-4e7a-9c55-0d2f6b8e1a34"],
        topic: [TEXT, "test.topic"],
        attempt: { const: 0 },
        timestamp: [TIME, "2025-01-31T12:00:00.000Z"],
      },
      "The bound variables.",
    ),
  }),
  TransformTestFailure: object({
    success: { const: false },
    error: text("What is wrong, for the author of the request."),
  }),
  ReplayRequest: openObject({ ...INBOX, ...REPLAY_FILTERS }, [], {
    description: "Rows that match every given filter; at least one is required. `null` counts as absent.",
    anyOf: someFilter(),
  }),
  ReplayResult: changeResult({ moved: [count("Rows that are `pending` again."), 42] }),
  Claimed: object({
    claimToken: nullable("string", { format: "uuid", description: "Null without messages." }),
    leaseMs: { type: "integer" },
    messages: list(
      object({
        id: { ...UUID, description: "The `id` of the inbox row." },
        aggregateId: TEXT_OR_NULL,
        eventType: TEXT_OR_NULL,
        idempotencyKey: TEXT,
        correlationId: TEXT_OR_NULL,
        attempt: { ...integer("How often the message was claimed, including this claim."), minimum: 1 },
        createdAt: TIME_OR_NULL,
        headers: { type: "object", additionalProperties: TEXT, description: "The received headers." },
        payload: { description: "The stored document byte for byte; when it is not JSON, a string that holds it." },
      }),
      "Oldest first.",
    ),
  }),
  AckRequest: request(CLAIM_REFERENCE, ["claimToken"]),
  Acknowledged: object(ACKNOWLEDGED),
  NothingAcknowledged: nothingHeld(ACKNOWLEDGED),
  NackRequest: request(
    {
      ...CLAIM_REFERENCE,
      delayMs: number("delayMs", "Time until the messages are available again, in ms."),
      error: nullable("string", "Why; stored with the message."),
    },
    ["claimToken"],
  ),
  GivenBack: object(GIVEN_BACK),
  NothingGivenBack: nothingHeld(GIVEN_BACK),
  Extended: object(EXTENDED),
  NothingExtended: nothingHeld(EXTENDED),
} as const satisfies Readonly<Record<string, Schema>>;

export type SchemaName = keyof typeof SCHEMAS;

/** A schema by its name. */
export function ref(name: SchemaName): Schema {
  return { $ref: `#/components/schemas/${name}`, [EXAMPLE]: exampleOf(SCHEMAS[name]) };
}

/** The bodies that claim messages, and hold them for longer. @param defaultLeaseMs `inbox.pull.leaseMs` */
export function leaseRequests(defaultLeaseMs: number): { readonly claim: Schema; readonly extend: Schema } {
  const leaseMs = {
    ...number("leaseMs", "How long the messages are held from now on, in ms."),
    default: defaultLeaseMs,
  };
  const waitMs = number("waitMs", "Longest wait for a message, in ms; 0 answers at once.");
  return {
    claim: request({ max: number("max", "Most messages."), leaseMs, waitMs }),
    extend: request({ ...CLAIM_REFERENCE, leaseMs }, ["claimToken"]),
  };
}
