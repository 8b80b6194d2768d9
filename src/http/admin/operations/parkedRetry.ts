import { type ParkedSelection, saysWhichRows } from "../../../core/operations/parked.ts";
import { FAILURE, MESSAGE_ID, STORABLE, TOPIC_PATTERN } from "../../../core/operations/syntax.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import * as schema from "../../openapi/schemas.ts";
import { type Admin, CALLER, InvalidRequest } from "../operation.ts";
import { OF_KEY, OF_TOPIC } from "./parkedList.ts";
import { OF_GROUP, replayFields } from "./replay.ts";

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
export const whichRows = (names: readonly string[]) => ({
  ids: field.list(MESSAGE_ID, "Only these rows."),
  topic: field.text(TOPIC_PATTERN, OF_TOPIC),
  key: field.text(STORABLE, OF_KEY),
  destination: replayFields(names).destination,
  lastError: field.text(FAILURE, `Only rows ${OF_GROUP}`),
  all: field.flag("Every parked row."),
});

const FILTERS = Object.keys(whichRows([])).filter((name) => name !== "all");

/** A filter, or all rows, and not both. */
export const SAYS_WHICH = {
  description:
    "Rows that match every given filter, or `all` without a filter. `null` counts as absent, but for `destination`.",
  anyOf: [
    ...FILTERS.map((name) => ({
      required: [name],
      properties: { [name]: { not: { type: "null" } }, all: { enum: [false, null] } },
    })),
    {
      required: ["all"],
      properties: {
        all: { const: true },
        ...Object.fromEntries(FILTERS.map((name) => [name, { type: "null" }])),
      },
    },
  ],
};

/** @throws InvalidRequest unless it says which rows */
export function selectionOf({
  all,
  lastError: reason,
  ...rest
}: field.ValuesOf<ReturnType<typeof whichRows>>): ParkedSelection {
  const selection = { ...rest, reason };
  if (saysWhichRows(selection, all)) return selection;
  const which =
    '"ids", "topic", "key", "destination" or "lastError", or "all": true for every parked row, which goes with none of them';
  throw new InvalidRequest(`say which rows: ${which}`);
}

const COUNT = schema.count("Rows that were changed; they stay changed.");

export const CHANGED = [
  answer.json(200, "Every matching row is changed.", schema.changeResult({ changed: [COUNT, 1] })),
  answer.invalidBody("say which rows: ..."),
  ...answer.interrupted("changed", COUNT),
];
