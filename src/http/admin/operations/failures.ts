import { choice, STORABLE } from "../../../core/operations/syntax.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import * as schema from "../../openapi/schemas.ts";
import { type Admin, LIMIT, LISTED_BY_DEFAULT } from "../operation.ts";

const { TEXT, TEXT_OR_NULL, TIME_OR_NULL, UUID } = schema;

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

const BLOCKED_KEY = schema.inCell({
  key: TEXT,
  id: { ...UUID, description: "Of the row that blocks it." },
  topic: TEXT_OR_NULL,
  destination: TEXT_OR_NULL,
  state: { enum: ["retry", "parked"] },
  attempt: schema.count("Failed attempts of that row."),
  dueAt: TIME_OR_NULL,
  lastError: TEXT_OR_NULL,
  rowsBehind: schema.count("Rows that wait behind it; 1,000 means that many or more."),
});

export const showBlockedKeys = ({ read, overview }: Admin) =>
  read("admin_blocked_keys", {
    summary: "Show the keys that wait behind a failed row",
    description: "Those whose retry is due first, then those behind parked rows.",
    query: { limit: LIMIT },
    answers: answer.queried(answer.json(200, "The keys.", schema.fromCells({ keys: [schema.list(BLOCKED_KEY), []] }))),
    work: async ({ limit = LISTED_BY_DEFAULT }) => ({ keys: await overview.blockedKeys(limit) }),
  });
