import { MOST_LISTED, type ParkedSelection, parkedRowShown, saysWhichRows } from "../../../core/operations/parked.ts";
import {
  FAILURE,
  LONGEST_REASON,
  MESSAGE_ID,
  numberUpTo,
  REASON,
  STORABLE,
  TOPIC_PATTERN,
} from "../../../core/operations/syntax.ts";
import * as schema from "../../../model/described.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import { type Admin, CALLER, InvalidRequest, LISTED_BY_DEFAULT } from "../operation.ts";
import { OF_GROUP, replayFields } from "./replay.ts";

const { TEXT_OR_NULL, TIME_OR_NULL, UUID } = schema;

const OF_TOPIC = "Only rows whose topic matches this pattern, as in `routes`.";
const OF_KEY = "Only the row of this key.";

const PARKED_ROW = schema.inCell({
  id: [UUID, "01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f"],
  sequence: [schema.text("Its place in the order of delivery."), "17"],
  topic: [TEXT_OR_NULL, "orders.created"],
  key: [TEXT_OR_NULL, "order-17"],
  lastError: [schema.nullable("string", "The beginning of the reason."), "answered 503: not today"],
  attempts: [schema.integer("Delivery attempts."), 12],
  parkedAt: [TIME_OR_NULL, "2025-01-31T12:00:00.000Z"],
});

export const listParked = ({ read, parked }: Admin) =>
  read("admin_parked_list", {
    summary: "Show parked outbox rows",
    description:
      "Rows that failed for good on a route with `onExhausted: park`, in the order of delivery; no payloads.",
    query: {
      topic: field.inQuery(TOPIC_PATTERN, OF_TOPIC),
      key: field.inQuery(STORABLE, OF_KEY),
      limit: field.inQuery(numberUpTo(MOST_LISTED), "Most rows; 50 by default."),
    },
    answers: answer.queried(
      answer.json(200, "The first parked rows that match.", schema.fromCells({ rows: schema.list(PARKED_ROW) })),
    ),
    work: async ({ limit = LISTED_BY_DEFAULT, ...selection }) => ({
      rows: (await parked.list(selection, limit)).map(parkedRowShown),
    }),
  });

export const retryParked = ({ operation, destinations, parked, run }: Admin) =>
  operation("admin_parked_retry", {
    summary: "Retry parked outbox rows",
    description:
      "The rows are due at once, with `attempt` 0; later rows of their keys follow. A row that fails for good is parked again.",
    body: {
      fields: { ...whichRows(destinations.names), by: CALLER },
      keywords: SAYS_WHICH,
      examples: { byKey: { summary: "The row of one key", value: { key: "order-17" } } },
    },
    answers: CHANGED,
    work: ({ by, ...which }) => run((signal) => parked.retry(selectionOf(which), by, signal)),
  });

/** @param names of the configured destinations */
const whichRows = (names: readonly string[]) => ({
  ids: field.list(MESSAGE_ID, "Only these rows."),
  topic: field.text(TOPIC_PATTERN, OF_TOPIC),
  key: field.text(STORABLE, OF_KEY),
  destination: replayFields(names).destination,
  lastError: field.text(FAILURE, `Only rows ${OF_GROUP}`),
  all: field.flag("Every parked row."),
});

/** A filter, or all rows, and not both. */
const SAYS_WHICH = {
  description:
    "Rows that match every given filter, or `all` without a filter. `null` counts as absent, but for `destination`.",
};

/** @throws InvalidRequest unless it says which rows */
function selectionOf({
  all,
  lastError: reason,
  ...rest
}: field.ValuesOf<ReturnType<typeof whichRows>>): ParkedSelection {
  const selection = { ...rest, reason };
  if (saysWhichRows(selection, all)) return selection;
  const which = '"ids", "topic", "key", "destination" or "lastError", or "all": true alone for every parked row';
  throw new InvalidRequest(`say which rows: ${which}`);
}

const COUNT = schema.count("Rows that were changed; they stay changed.");

const CHANGED = [
  answer.json(200, "Every matching row is changed.", schema.changeResult({ changed: [COUNT, 1] })),
  answer.invalidBody("say which rows: ..."),
  ...answer.interrupted("changed", COUNT),
];

export const discardParked = ({ operation, destinations, parked, run }: Admin) =>
  operation("admin_parked_discard", {
    summary: "Discard parked outbox rows",
    description:
      "The rows become `dead`; `last_error` begins with the caller and the reason. The next rows of their keys are delivered.",
    body: {
      fields: {
        ...whichRows(destinations.names),
        by: CALLER,
        reason: field.required(
          field.text(REASON, "Why; kept in `last_error`."),
          `a text of 1 to ${LONGEST_REASON} characters`,
        ),
      },
      keywords: SAYS_WHICH,
      examples: {
        byKey: { summary: "The row of one key", value: { key: "order-17", reason: "order was cancelled" } },
      },
    },
    answers: CHANGED,
    work: ({ by, reason, ...which }) => run((signal) => parked.discard(selectionOf(which), by, reason, signal)),
  });
