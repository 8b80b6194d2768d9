import { object } from "./object.ts";
import type { Schema } from "./types.ts";

/** The bodies of the pull routes (docs/pull.md). */

const ID: Schema = { type: "string", format: "uuid" };
const IDS: Schema = { type: "array", items: ID };
const optionalText: Schema = { type: ["string", "null"] };

function optional(schema: { readonly type: string } & Schema): Schema {
  return { ...schema, type: [schema.type, "null"] };
}

const leaseMs = (defaultMs: number): Schema =>
  optional({
    type: "integer",
    minimum: 1000,
    maximum: 3_600_000,
    default: defaultMs,
    description: "How long the messages are held from now on, in ms.",
  });

const REFERENCE = {
  claimToken: { ...ID, description: "The token that the claim answered with." },
  ids: optional({
    type: "array",
    items: ID,
    minItems: 1,
    description: "Which messages of the claim; all when absent.",
  }),
};

/** @param defaultLeaseMs `inbox.pull.leaseMs` */
export function claimRequest(defaultLeaseMs: number): Schema {
  return request([], {
    max: optional({ type: "integer", minimum: 1, maximum: 1000, default: 10, description: "Most messages." }),
    leaseMs: leaseMs(defaultLeaseMs),
    waitMs: optional({
      type: "integer",
      minimum: 0,
      maximum: 60_000,
      default: 0,
      description: "Longest wait for a message, in ms; 0 answers at once.",
    }),
  });
}

const ACK_REQUEST = request(["claimToken"], REFERENCE);

const NACK_REQUEST = request(["claimToken"], {
  ...REFERENCE,
  delayMs: optional({
    type: "integer",
    minimum: 0,
    maximum: 86_400_000,
    default: 0,
    description: "Wait until the messages are available again, in ms.",
  }),
  error: { ...optionalText, description: "Why; it is stored with the message." },
});

/** @param defaultLeaseMs `inbox.pull.leaseMs` */
export function extendRequest(defaultLeaseMs: number): Schema {
  return request(["claimToken"], { ...REFERENCE, leaseMs: leaseMs(defaultLeaseMs) });
}

function request(required: readonly string[], properties: Readonly<Record<string, Schema>>): Schema {
  return {
    type: "object",
    description: "Unknown fields are ignored; null counts as absent.",
    ...(required.length === 0 ? {} : { required }),
    properties,
  };
}

const MESSAGE = object({
  id: { ...ID, description: "The `id` of the inbox row." },
  aggregateId: optionalText,
  eventType: optionalText,
  idempotencyKey: { type: "string" },
  correlationId: optionalText,
  attempt: { type: "integer", minimum: 1, description: "How often the message was claimed, this claim included." },
  createdAt: { type: ["string", "null"], format: "date-time" },
  headers: { type: "object", additionalProperties: { type: "string" }, description: "The received headers." },
  payload: { description: "The stored document byte for byte; a string that holds it when it is no JSON." },
});

const CLAIMED = object({
  claimToken: { ...ID, type: ["string", "null"], description: "Null when there was no message." },
  leaseMs: { type: "integer" },
  messages: { type: "array", items: MESSAGE, description: "The oldest first." },
});

const LOST = { ...IDS, description: "Messages that were named and are not held any more." };

const ACKNOWLEDGED = { acknowledged: IDS, lost: LOST };
const REJECTED = { retried: IDS, dead: IDS, released: IDS, lost: LOST };
const EXTENDED = { extended: IDS, lost: LOST };
const NOTHING_HELD = { error: { type: "string" } };

/** The schemas that the pull routes of all sources share. */
export const PULL_SCHEMAS = {
  Claimed: CLAIMED,
  AckRequest: ACK_REQUEST,
  Acknowledged: object(ACKNOWLEDGED),
  NothingAcknowledged: object({ ...NOTHING_HELD, ...ACKNOWLEDGED }),
  NackRequest: NACK_REQUEST,
  GivenBack: object(REJECTED),
  NothingGivenBack: object({ ...NOTHING_HELD, ...REJECTED }),
  Extended: object(EXTENDED),
  NothingExtended: object({ ...NOTHING_HELD, ...EXTENDED }),
} as const satisfies Readonly<Record<string, Schema>>;
