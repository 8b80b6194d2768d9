import { choice, STORABLE } from "../../../core/operations/syntax.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import * as schema from "../../openapi/schemas.ts";
import { type Admin, LIMIT, LISTED_BY_DEFAULT } from "../operation.ts";

const { TEXT_OR_NULL, TIME_OR_NULL, UUID } = schema;

const GROUP = schema.object({
  state: { enum: ["dead", "parked"] },
  destination: TEXT_OR_NULL,
  reason: schema.nullable("string", "That of the newest row."),
  count: schema.count("Rows."),
  newestAt: TIME_OR_NULL,
  oldestAt: TIME_OR_NULL,
  ids: schema.list(UUID, "Of the newest five."),
});

export const showFailures = ({ read, overview }: Admin) =>
  read("admin_failures", {
    summary: "Show dead and parked rows by reason",
    description:
      "Of the rows that died last, and the first parked ones: rows whose reasons differ in numbers and ids only are one group.",
    query: {
      state: field.inQuery(choice(["dead", "parked"] as const), "Only dead or only parked rows."),
      destination: field.inQuery(STORABLE, "Only rows that the routes send to this destination."),
      limit: LIMIT,
    },
    answers: answer.queried(
      answer.json(
        200,
        "The groups, the largest first.",
        schema.fromCells({
          groups: [schema.list(GROUP), []],
          rowsRead: [schema.count("Rows that were read."), 0],
          isComplete: [schema.bool("False: there are more rows than were read."), true],
        }),
      ),
    ),
    async work({ limit = LISTED_BY_DEFAULT, ...filter }) {
      const { groups, ...rest } = await overview.failures(filter);
      return { groups: groups.slice(0, limit), ...rest };
    },
  });
