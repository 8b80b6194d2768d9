import { BROKER_SOURCE_KINDS } from "../../adapters/kinds.ts";
import { httpSource } from "../../adapters/sources/http/kind.ts";
import { CONSUMPTIONS } from "../../model/rows.ts";
import { block, boolean, duration, integer, text, textOrList } from "../../model/schema.ts";
import { withCommonKeys } from "../kinds.ts";
import { attributeHeadersSchema, filterSchema, transformSchema } from "./blocks.ts";

/** Dates far beyond them are what a database cannot hold: no message could be stored. */
export const MAX_INITIAL_DELAY_MS = 365 * 24 * 3_600_000;
export const MAX_TIME_TO_LIVE_MS = MAX_INITIAL_DELAY_MS;

/** @param description what the expression gives */
const attributeExpression = (description: string) =>
  text(`JSONata that computes ${description} from the body and \`$headers\`; read after the header, before the path.`, {
    syntax: "expression",
  });

const TOPIC = "Outbox topic; may contain `{{ source }}` and `{{ eventType }}`.";

/** Keys of every source (spec, "sources.<name> (common keys)"). */
const commonKeys = {
  consumption: text("`push`: the relay copies rows into the outbox; `pull`: they wait for a pull client.", {
    enum: CONSUMPTIONS,
    default: "push",
  }),
  idempotencyKeyExpression: attributeExpression("the idempotency key"),
  eventTypeExpression: attributeExpression("the event type"),
  aggregateIdExpression: attributeExpression("the aggregate id"),
  aggregateIdPath: textOrList(
    "JSONPath of the aggregate id, the outbox `key`; of several the first with a value.",
    "jsonPath",
  ),
  keyScope: text("Outbox key: `shared`: the aggregate id, ordered across all sources; `source`: `source:aggregate`.", {
    enum: ["shared", "source"],
    default: "shared",
  }),
  eventTypePath: textOrList("JSONPath of the event type; of several the first with a value.", "jsonPath"),
  cloudEvents: boolean(
    "Messages are CloudEvents 1.0, structured as JSON or binary; others are refused. Key, type and aggregate id are `id`, `type` and `subject` where no other key names a place.",
  ),
  initialDelay: duration(
    "Holds each received row: it is relayed, or given to pull clients, this long after its publication. At most `365d`.",
  ),
  scheduledAtPath: textOrList(
    "JSONPath of the [time](#formats) of publication, with which `initialDelay` begins; without that it changes nothing. Where there is none, the `time` of the event (`cloudEvents`) counts, else that of the broker.",
    "jsonPath",
  ),
  deliverAtPath: textOrList(
    "JSONPath of the [time](#formats) before which a row is not relayed, nor given to pull clients.",
    "jsonPath",
  ),
  timeToLive: duration(
    "After so long from its receipt a message is `dead` instead of delivered. Longer than `initialDelay`, at most `365d`.",
  ),
  expiresAtPath: textOrList(
    "JSONPath of the [time](#formats) after which a message is `dead` instead of delivered.",
    "jsonPath",
  ),
  transform: { ...transformSchema, description: "Runs before the row is stored." },
  filter: filterSchema,
  tracing: block("Traces of its senders.", [], {
    trust: boolean(
      "A sender's span is the parent of the receipt and decides about its sampling; else there is a link.",
      {
        default: false,
      },
    ),
  }),
  rateLimit: block("Rate limit; HTTP only.", [], {
    requestsPerMinute: integer("Requests per minute of the whole source; then 429.", { minimum: 1 }),
  }),
} as const;

/** @param syntax of a header's name */
const headerKeys = <const S extends "headerName" | "notBlank">(syntax: S) => ({
  idempotencyKeyHeader: text("Header with the idempotency key; read before every other place.", { syntax }),
  eventTypeHeader: text("Header with the event type; read before every other place.", { syntax }),
  aggregateIdHeader: text("Header with the aggregate id; read before every other place.", { syntax }),
  scheduledAtHeader: text("Header with the time of `scheduledAtPath`; read before that.", { syntax }),
  deliverAtHeader: text("Header with the time of `deliverAtPath`; read before that.", { syntax }),
  expiresAtHeader: text("Header with the time of `expiresAtPath`; read before that.", { syntax }),
});

const httpSourceKeys = {
  ...commonKeys,
  ...headerKeys("headerName"),
  topic: text(TOPIC, { syntax: "topicTemplate", default: "{{ eventType }}" }),
  idempotencyKeyPath: textOrList(
    "JSONPath of the idempotency key, of several the first with a value; not needed with `idempotencyKeyHeader`, `idempotencyKeyExpression` or `auth.provider`.",
    "jsonPath",
  ),
} as const;

const brokerSourceKeys = {
  ...commonKeys,
  ...headerKeys("notBlank"),
  topic: text(TOPIC, { syntax: "topicTemplate", default: "{{ source }}" }),
  idempotencyKeyPath: {
    ...textOrList("JSONPath of the idempotency key; of several the first with a value.", "jsonPath"),
    default: ["$.id"],
  },
  attributeHeaders: attributeHeadersSchema,
  required: boolean("`false`: the source does not decide readiness.", { default: true }),
} as const;

export const sourcesSchema = {
  type: "object",
  default: {},
  description: "Where messages come from. The name is stored in the `source` column.",
  additionalProperties: {
    description: "A source.",
    kinds: {
      ...withCommonKeys({ http: httpSource }, httpSourceKeys),
      ...withCommonKeys(BROKER_SOURCE_KINDS, brokerSourceKeys),
    },
  },
} as const;
