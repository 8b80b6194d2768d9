import { BROKER_SOURCE_KINDS } from "../../adapters/kinds.ts";
import { httpSource } from "../../adapters/sources/http/kind.ts";
import { CONSUMPTIONS } from "../../model/rows.ts";
import { block, boolean, duration, integer, text, textOrList } from "../../model/schema.ts";
import { withCommonKeys } from "../kinds.ts";
import { attributeHeadersSchema, filterSchema, transformSchema } from "./blocks.ts";

/** Dates far beyond them are what a database cannot hold: no message could be stored. */
export const MAX_INITIAL_DELAY_MS = 365 * 24 * 3_600_000;
export const MAX_TIME_TO_LIVE_MS = MAX_INITIAL_DELAY_MS;

const attributeExpression = text("JSONata that computes the value.", { syntax: "expression" });

const TOPIC = "Outbox topic; may contain `{{ source }}` and `{{ eventType }}`.";

/** Keys of every source (spec, "sources.<name> (common keys)"). */
const commonKeys = {
  consumption: text("`push`: rows go to the outbox; `pull`: they wait for a [pull client](pull.md).", {
    enum: CONSUMPTIONS,
    default: "push",
  }),
  idempotencyKeyExpression: attributeExpression,
  eventTypeExpression: attributeExpression,
  aggregateIdExpression: attributeExpression,
  aggregateIdPath: textOrList("Aggregate id in the body, the outbox `key`.", "jsonPath"),
  keyScope: text("Outbox key: the aggregate id (`shared`), or `source:aggregate` (`source`).", {
    enum: ["shared", "source"],
    default: "shared",
  }),
  eventTypePath: textOrList("Event type in the body.", "jsonPath"),
  cloudEvents: boolean("Messages are [CloudEvents](webhooks/cloudevents.md); others are refused."),
  initialDelay: duration("Wait from publication until relay or pull; at most `365d`."),
  scheduledAtPath: textOrList(
    "[Time](#formats) of publication, from which `initialDelay` counts; else the event's `time` (`cloudEvents`), else the broker's.",
    "jsonPath",
  ),
  deliverAtPath: textOrList("[Time](#formats) before which a row is neither relayed nor pulled.", "jsonPath"),
  timeToLive: duration(
    "Time from receipt after which a message is `dead`; longer than `initialDelay`, at most `365d`.",
  ),
  expiresAtPath: textOrList("[Time](#formats) after which a message is `dead`.", "jsonPath"),
  transform: { ...transformSchema, description: "Runs before the row is stored." },
  filter: filterSchema,
  tracing: block("Traces of senders.", [], {
    trust: boolean("The sender's span is the receipt's parent and decides sampling; else it is linked.", {
      default: false,
    }),
  }),
  rateLimit: block("HTTP only.", [], {
    requestsPerMinute: integer("Requests per minute of the whole source; then 429.", { minimum: 1 }),
  }),
} as const;

/** @param syntax of a header's name */
const headerKeys = <const S extends "headerName" | "notBlank">(syntax: S) => {
  const header = text("Header with the value.", { syntax });
  return {
    idempotencyKeyHeader: header,
    eventTypeHeader: header,
    aggregateIdHeader: header,
    scheduledAtHeader: header,
    deliverAtHeader: header,
    expiresAtHeader: header,
  };
};

const httpSourceKeys = {
  ...commonKeys,
  ...headerKeys("headerName"),
  topic: text(TOPIC, { syntax: "topicTemplate", default: "{{ eventType }}" }),
  idempotencyKeyPath: textOrList(
    "Idempotency key in the body; not needed with `idempotencyKeyHeader`, `idempotencyKeyExpression`, `cloudEvents` or `auth.provider`.",
    "jsonPath",
  ),
} as const;

const brokerSourceKeys = {
  ...commonKeys,
  ...headerKeys("notBlank"),
  topic: text(TOPIC, { syntax: "topicTemplate", default: "{{ source }}" }),
  idempotencyKeyPath: {
    ...textOrList("Idempotency key in the body.", "jsonPath"),
    default: ["$.id"],
  },
  attributeHeaders: attributeHeadersSchema,
  required: boolean("`false`: readiness does not depend on the source.", { default: true }),
} as const;

export const sourcesSchema = {
  type: "object",
  default: {},
  description:
    "The name is stored in the column `source`. A value comes from the first of its `...Header`, [`...Expression`](transforms.md#attributes) and `...Path` that has it; of several paths, the first with a value.",
  additionalProperties: {
    description: "A source.",
    kinds: {
      ...withCommonKeys({ http: httpSource }, httpSourceKeys),
      ...withCommonKeys(BROKER_SOURCE_KINDS, brokerSourceKeys),
    },
  },
} as const;
