import { hasFilter, misfit, NO_FILTER, type ReplayRequest } from "../../../core/operations/replayRequest.ts";
import {
  destinationName,
  FAILURE,
  FINISHED_STATE,
  instant,
  MESSAGE_ID,
  STORABLE,
} from "../../../core/operations/syntax.ts";
import * as schema from "../../../model/described.ts";
import { ERRORS } from "../../exchange.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import { type Admin, CALLER, InvalidRequest, Refusal } from "../operation.ts";

/** `POST /admin/replay` of the specification, which answers when the replay has ended. */
export function replayNow({ operation, guardBody, destinations, replay, run }: Admin) {
  const { inbox, destination, toDestination, add, ...filters } = replayFields(destinations.names);
  const fields = { inbox, ...filters, destination, toDestination, add, by: CALLER };
  const ofFilter = {
    inbox,
    ...filters,
    destination: field.orNull(field.text({ ...STORABLE, schema: { type: "string" } }, OF_DESTINATION)),
  };
  const { enum: names } = destination.schema;
  const filter = field.bodySchema({ fields: ofFilter, keywords: { description: EVERY_FILTER, anyOf: someFilter() } });
  return operation(
    "admin_replay",
    {
      summary: "Deliver finished outbox rows again",
      description:
        "Moves matching outbox rows from `sent` or `dead` back to `pending`, with `attempt` 0 and due now; other rows stay " +
        "as they are, and each row keeps its `id`. Rows that finish after the request arrived are not included. Rows move " +
        "in batches: those moved before an error stay moved, and the same request may be sent again. With `inbox` dead inbox " +
        "rows pass the filter, attributes and transform of their source again, the oldest 50,000 of the matching ones. With `add` rows stay, and each " +
        "matching message that never went to that destination gets a delivery there.",
      body: {
        fields,
        schema: {
          allOf: [
            schema.named("ReplayRequest", filter),
            {
              properties: {
                destination: { enum: names },
                toDestination: toDestination.schema,
                add: add.schema,
                by: CALLER.schema,
              },
            },
          ],
        },
        examples: {
          dead: {
            summary: "Rows dead since an instant",
            value: { state: "dead", createdAfter: "2025-01-31T12:00:00Z" },
          },
          byTopic: { summary: "Rows of a topic within an hour", value: HOUR },
        },
      },
      answers: [
        answer.json(200, "The replay has ended.", RESULT),
        answer.error(400, "No filter is set.", NO_FILTER, "InvalidRequest"),
        NO_DESTINATION_COLUMN,
        answer.invalidBody('"topic" is a number; a string is expected'),
        ...answer.interrupted("moved", schema.count("Rows moved before the interruption; they stay moved.")),
      ],
      async work({ by, ...request }) {
        requireFit(request);
        // A request without a filter must not mean everything.
        if (!hasFilter(request)) throw new Refusal(400, NO_FILTER);
        return await run((signal) => replay.run(request, by, signal));
      },
    },
    guardBody,
  );
}

const RESULT = schema.named(
  "ReplayResult",
  schema.changeResult({ moved: [schema.count("Rows that are `pending` again, or deliveries that were added."), 42] }),
);

export const HOUR = {
  topic: "orders.created",
  createdAfter: "2025-01-31T12:00:00Z",
  createdBefore: "2025-01-31T13:00:00Z",
};

export const NO_DESTINATION_COLUMN = answer.error(
  501,
  "The outbox has no column for that.",
  ERRORS.noDestinationColumn,
);

const EVERY_FILTER =
  "Rows that match every given filter; at least one is required. `null` counts as absent, but for `destination`.";
const OF_DESTINATION =
  "Only rows that go to this destination: by the first route that matches, or since an earlier replay. " +
  "Null, beside another filter: only rows that no route sends anywhere.";

export const OF_GROUP =
  "that failed for this reason, as a list of failures or a dry run shows it: words with a digit (numbers, ids, times) " +
  "count as equal, and so does all behind the first 120 characters.";

/** @param names of the configured destinations */
export function replayFields(names: readonly string[]) {
  return {
    inbox: field.flag(
      "Dead inbox rows, not finished outbox rows; goes with `ids`, `source`, `state` and the instants.",
    ),
    source: field.text(STORABLE, "Only inbox rows of this source."),
    state: field.text(FINISHED_STATE, "Only delivered rows, or only dead ones."),
    ids: field.list(MESSAGE_ID, "Only these rows."),
    topic: field.text(STORABLE, "Only rows with this topic."),
    topics: field.list(STORABLE, "Only rows with one of these topics."),
    destination: field.orNull(field.text(destinationName(names), OF_DESTINATION)),
    reason: field.text(FAILURE, `Only dead rows ${OF_GROUP}`),
    createdAfter: field.text(instant("after"), "Only rows created after this instant."),
    createdBefore: field.text(instant("before"), "Only rows created before this instant."),
    toDestination: field.text(
      destinationName(names),
      "Where they are delivered from now on; by default where they went before. No filter.",
    ),
    add: field.text(
      destinationName(names),
      "A destination of the list of their route, to which matching messages are delivered that never went there; goes " +
        "with `ids`, the topics and the instants. No filter.",
    ),
  };
}

/** @throws InvalidRequest for a field that does not go with the table */
export function requireFit(request: Parameters<typeof misfit>[0]): void {
  const reason = misfit(request);
  if (reason !== undefined) throw new InvalidRequest(reason);
}

const NULL = { type: "null" };
const OF_ALL = ["ids", "createdAfter", "createdBefore"] satisfies readonly (keyof ReplayRequest)[];
const someOf = (names: readonly string[], fitting: Readonly<Record<string, object>>, required: readonly string[]) =>
  names.map((name) => ({
    required: [...required, name],
    properties: { ...fitting, [name]: { ...fitting[name], not: NULL } },
  }));

/**
 * Of `anyOf`: one of the filters at least, and none that does not go with the table.
 *
 * @param inInbox what a request on the inbox has besides
 */
export const someFilter = (inInbox: Readonly<Record<string, object>> = {}) => [
  ...someOf(
    [...OF_ALL, "topic", "topics", "state", "destination", "reason"],
    { inbox: { enum: [false, null] }, source: NULL, add: NULL },
    [],
  ),
  ...someOf(
    [...OF_ALL, "topic", "topics"],
    {
      ...{ inbox: { enum: [false, null] }, source: NULL, state: NULL },
      ...{ destination: NULL, reason: NULL, toDestination: NULL },
    },
    ["add"],
  ),
  ...someOf(
    [...OF_ALL, "state", "source"],
    {
      ...{ ...inInbox, inbox: { const: true }, state: { enum: ["dead", null] } },
      ...{
        topic: NULL,
        topics: NULL,
        destination: NULL,
        reason: NULL,
        toDestination: NULL,
        add: NULL,
        perSecond: NULL,
      },
    },
    ["inbox", ...Object.keys(inInbox)],
  ),
];
