import { NUMBERS } from "../pull/requests.ts";
import { ERRORS } from "../respond.ts";
import type { Parameter, Schema } from "./types.ts";

/** An object with exactly these members. */
export function object(properties: Readonly<Record<string, Schema>>): Schema {
  return { type: "object", required: Object.keys(properties), additionalProperties: false, properties };
}

/** A value of this type, or null. */
export function nullable(type: string, keywords: Schema = {}): Schema {
  return { type: [type, "null"], ...keywords };
}

/** A request body: members that are not listed are ignored, and null counts as absent. */
export function request(properties: Readonly<Record<string, Schema>>, required: readonly string[] = []): Schema {
  const description = "Unknown fields are ignored; null counts as absent.";
  return { type: "object", description, ...(required.length === 0 ? {} : { required }), properties };
}

/** A parameter of a request; one in the path is required. */
export function parameter(place: Parameter["in"], name: string, description: string, schema: Schema): Parameter {
  return { name, in: place, required: place === "path", description, schema };
}

/** Text that every database can hold. */
export const STORABLE = "^[^\\u0000]*$";
export const UUID: Schema = { type: "string", format: "uuid" };
const UUIDS: Schema = { type: "array", items: UUID };
export const TEXT: Schema = { type: "string" };
export const TEXT_OR_NULL: Schema = nullable("string");
export const TIME_OR_NULL: Schema = nullable("string", { format: "date-time" });
/** A whole number from 0. */
export const count = (description: string): Schema => ({ type: "integer", minimum: 0, description });

const fixedError = (text: string): Schema => object({ error: { const: text } });
/** The members of an answer that names messages, and the 409 that has them too. */
const lists = (properties: Readonly<Record<string, Schema>>) => ({
  ...properties,
  lost: { ...UUIDS, description: "Messages that were named and are no longer held." },
});
const nothingHeld = (properties: Readonly<Record<string, Schema>>): Schema => object({ error: TEXT, ...properties });

export const REPLAY_FILTERS = {
  state: nullable("string", { enum: ["sent", "dead", null], description: "Only delivered rows, or only dead ones." }),
  ids: nullable("array", { items: UUID, description: "Only these rows." }),
  topic: nullable("string", { pattern: STORABLE, description: "Only rows with this topic." }),
  topics: nullable("array", {
    items: { type: "string", pattern: STORABLE },
    description: "Only rows with one of these topics.",
  }),
  destination: nullable("string", {
    description: "Only rows that go to this destination: by the first route that matches, or since an earlier replay.",
  }),
  createdAfter: nullable("string", { format: "date-time", description: "Only rows created after this instant." }),
  createdBefore: nullable("string", { format: "date-time", description: "Only rows created before this instant." }),
};

/** Of `anyOf`: one of the filters at least. */
export const SOME_FILTER = Object.keys(REPLAY_FILTERS).map((name) => ({
  required: [name],
  properties: { [name]: { not: { type: "null" } } },
}));

/** @param names of the destinations */
export const toDestination = (names: readonly string[]) => ({
  toDestination: nullable("string", {
    enum: [...names, null],
    description: "Where they are delivered from now on; by default where they went before. No filter.",
  }),
});

const CLAIM_REFERENCE = {
  claimToken: { ...UUID, description: "The token that the claim returned." },
  ids: nullable("array", { items: UUID, minItems: 1, description: "Messages of the claim; all of them when absent." }),
};

/** A number of a pull request. */
function number(name: keyof typeof NUMBERS, description: string): Schema {
  const { from, to, fallback } = NUMBERS[name];
  return nullable("integer", { minimum: from, maximum: to, default: fallback, description });
}

const ACKNOWLEDGED = lists({ acknowledged: UUIDS });
const GIVEN_BACK = lists({ retried: UUIDS, dead: UUIDS, released: UUIDS });
const EXTENDED = lists({ extended: UUIDS });

const PULLED_MESSAGE = object({
  id: { ...UUID, description: "The `id` of the inbox row." },
  aggregateId: TEXT_OR_NULL,
  eventType: TEXT_OR_NULL,
  idempotencyKey: TEXT,
  correlationId: TEXT_OR_NULL,
  attempt: { type: "integer", minimum: 1, description: "How often the message was claimed, including this claim." },
  createdAt: TIME_OR_NULL,
  headers: { type: "object", additionalProperties: TEXT, description: "The received headers." },
  payload: { description: "The stored document byte for byte; when it is not JSON, a string that holds it." },
});

/** Of several messages in one request. */
const RECEIPTS: Schema = {
  type: "array",
  description:
    "For each message, in order, what it would have got alone; 424: another one was refused, with `batch.atomic`.",
  items: object({
    status: { type: "integer", enum: [200, 202, 400, 422, 424, 500, 503] },
    body: { type: "object" },
  }),
};

/** The schemas that several operations share; the bodies of the answers are those of the specification's tables. */
export const SCHEMAS = {
  Batch: object({ items: RECEIPTS }),
  BatchRefused: object({ error: TEXT, items: RECEIPTS }),
  Error: object({ error: { type: "string", description: "What is wrong, for the caller." } }),
  BodyTooLarge: object({ error: { type: "string", pattern: "^Request body exceeds [0-9]+ bytes$" } }),
  InternalError: fixedError(ERRORS.internal),
  InvalidRequest: object({
    error: { type: "string", pattern: "^(Invalid request: |A replay needs at least one filter|The body is not what)" },
  }),
  ShuttingDown: fixedError(ERRORS.shuttingDown),
  StorageFailed: fixedError(ERRORS.storageFailed),
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
      expression: { type: "string", description: "A JSONata expression." },
      payload: { description: "The input document `$`: any JSON value." },
      mockTopic: nullable("string", { default: "test.topic", description: "Value of `$topic`." }),
      mockSource: nullable("string", { description: "Value of `$source`; unbound when absent." }),
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
    result: { description: "The result of the expression: any JSON value." },
    context: {
      ...object({
        messageId: { ...UUID, description: "Random." },
        topic: TEXT,
        attempt: { const: 0 },
        timestamp: { type: "string", format: "date-time" },
      }),
      description: "The bound variables.",
    },
  }),
  TransformTestFailure: object({
    success: { const: false },
    error: { type: "string", description: "What is wrong, for the author of the request." },
  }),
  ReplayRequest: {
    type: "object",
    description: "Rows that match every given filter; at least one is required. `null` counts as absent.",
    anyOf: SOME_FILTER,
    properties: REPLAY_FILTERS,
  },
  ReplayResult: object({ moved: count("Rows that are `pending` again.") }),
  Claimed: object({
    claimToken: nullable("string", { format: "uuid", description: "Null without messages." }),
    leaseMs: { type: "integer" },
    messages: { type: "array", items: PULLED_MESSAGE, description: "Oldest first." },
  }),
  AckRequest: request(CLAIM_REFERENCE, ["claimToken"]),
  Acknowledged: object(ACKNOWLEDGED),
  NothingAcknowledged: nothingHeld(ACKNOWLEDGED),
  NackRequest: request(
    {
      ...CLAIM_REFERENCE,
      delayMs: number("delayMs", "Time until the messages are available again, in ms."),
      error: nullable("string", { description: "Why; stored with the message." }),
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
  return { $ref: `#/components/schemas/${name}` };
}

function leaseMs(fallback: number): Schema {
  return { ...number("leaseMs", "How long the messages are held from now on, in ms."), default: fallback };
}

/** @param defaultLeaseMs `inbox.pull.leaseMs` */
export function claimRequest(defaultLeaseMs: number): Schema {
  return request({
    max: number("max", "Most messages."),
    leaseMs: leaseMs(defaultLeaseMs),
    waitMs: number("waitMs", "Longest wait for a message, in ms; 0 answers at once."),
  });
}

/** @param defaultLeaseMs `inbox.pull.leaseMs` */
export function extendRequest(defaultLeaseMs: number): Schema {
  return request({ ...CLAIM_REFERENCE, leaseMs: leaseMs(defaultLeaseMs) }, ["claimToken"]);
}
