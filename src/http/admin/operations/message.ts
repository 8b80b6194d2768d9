import { MESSAGE_STATES } from "../../../core/operations/trace.ts";
import { ERRORS } from "../../exchange.ts";
import * as answer from "../../openapi/answers.ts";
import * as schema from "../../openapi/schemas.ts";
import { type Admin, namingMissing, Refusal } from "../operation.ts";
import { MESSAGE_ID } from "./messageActions.ts";

const { AT, TEXT, TEXT_OR_NULL, TIME_OR_NULL, UUID } = schema;

export const ID = "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f";
export const REASON = "POST https://billing.example/hook was answered 503: not today";

const EVENTS = [
  ...["received", "duplicate", "created", "relayed", "died in the inbox", "expanded", "skipped"],
  ...["sent", "retry", "park", "dead", "replayed", "retried", "discarded"],
];

const EVENT = schema.openObject(
  {
    at: [TIME_OR_NULL, "2025-01-31T12:00:01.000Z"],
    event: [{ enum: EVENTS }, "retry"],
    text: [TEXT, "failed, to be tried again"],
    attempt: [schema.integer("1 for the first."), 1],
    actor: [schema.text("The replica of an attempt, the operator of an action."), "relay-7f9c-1"],
    destination: [TEXT, "billing"],
    code: [schema.text("Why it failed, such as `status_5xx` or `timeout`."), "status_5xx"],
    status: [schema.text("The receiver's own code, such as an HTTP status."), "503"],
    durationMs: [{ type: "integer" }, 41],
    reason: [schema.text("With the beginning of the receiver's answer."), REASON],
  },
  ["at", "event", "text"],
);

const DELIVERY = schema.object({
  id: [UUID, "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f"],
  destination: [TEXT_OR_NULL, "billing"],
  state: [{ enum: ["pending", "processing", "sent", "dead", "parked"] }, "sent"],
  attempt: [schema.integer("Failed attempts."), 0],
  lastError: TEXT_OR_NULL,
  updatedAt: [TIME_OR_NULL, AT],
});

const RECEIVED = { at: AT, event: "received", text: "received from orders, idempotency key order-17" };

const WAIT = schema.object({
  code: [TEXT, "retry"],
  text: [TEXT, "failed 1 of 5 times: due at 2025-01-31T12:00:03.120Z"],
});

const WAITS = "Why it is not delivered yet, the first reason to look at first; empty for a finished message.";
const DUPLICATES =
  "How often it was received again in the last 24 hours, up to 1000; `events` has the newest 20. Null: not known.";

const TIMELINE = schema.fromCells(
  {
    id: [UUID, ID],
    state: [{ enum: [...MESSAGE_STATES, "parked"] }, "pending"],
    source: [TEXT_OR_NULL, "orders"],
    idempotencyKey: [TEXT_OR_NULL, "order-17"],
    correlationId: [TEXT_OR_NULL, "c-17"],
    topic: [TEXT_OR_NULL, "orders.created"],
    key: [TEXT_OR_NULL, "order-17"],
    destination: [schema.nullable("string", "By the routes of this process."), "billing"],
    messageId: schema.nullable("string", "Of a delivery of a list: its message."),
    expandedTo: schema.nullable("array", {
      items: TEXT,
      description: "Of a message that was expanded: its destinations.",
    }),
    deliveries: [schema.list(DELIVERY, "Of a message that was expanded; without deleted ones."), []],
    summary: schema.nullable("string", "What became of them, such as `2 of 3 delivered, 1 dead`."),
    attempts: [schema.integer("Failed attempts."), 1],
    maxAttempts: [schema.nullable("integer"), 5],
    lastError: [TEXT_OR_NULL, REASON],
    waits: schema.list(WAIT, WAITS),
    events: [schema.list(EVENT, "Oldest first."), [RECEIVED, schema.exampleOf(EVENT)]],
    hasHistory: [schema.bool("False: attempts and actions are missing, their table cannot be read."), true],
    duplicates: [schema.nullable("integer", DUPLICATES), 0],
  },
  { cell: [schema.text("With cells: the one that has its outbox row, else its inbox row."), undefined] },
);

export const showMessage = ({ operation, trace, cells, admin }: Admin) =>
  operation("admin_message", {
    summary: "Show what happened to a message, and why it waits",
    description:
      "With `admin.showPayloads` also its `payload`, a text (null where fields are hidden in what is not JSON), and its " +
      "`headers`. Secrets and the fields of `admin.redactPayloadPaths` are masked in every text.",
    path: MESSAGE_ID,
    answers: [
      answer.json(200, "The message.", TIMELINE),
      answer.error(404, "No such message.", ERRORS.noMessage),
      answer.STORAGE_FAILED,
    ],
    // The timeline masks itself, by the payload of the message.
    isMasked: true,
    work: ({ id }) =>
      namingMissing(cells, async () => {
        const found = id === undefined ? undefined : await trace.timeline(id);
        if (found === undefined) throw new Refusal(404, ERRORS.noMessage);
        const { timeline, payload, headers } = found;
        return admin.showPayloads ? { ...timeline, payload, headers } : timeline;
      }),
  });
