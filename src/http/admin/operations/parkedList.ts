import { MOST_LISTED, parkedRowShown } from "../../../core/operations/parked.ts";
import { numberUpTo, STORABLE, TOPIC_PATTERN } from "../../../core/operations/syntax.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import * as schema from "../../openapi/schemas.ts";
import { type Admin, LISTED_BY_DEFAULT } from "../operation.ts";

const { TEXT_OR_NULL, TIME_OR_NULL, UUID } = schema;

export const OF_TOPIC = "Only rows whose topic matches this pattern, as in `routes`.";
export const OF_KEY = "Only the row of this key.";

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
