import { BLOCKED_KEY, FAILURES } from "../../../core/operations/shown.ts";
import { choice, STORABLE } from "../../../core/operations/syntax.ts";
import * as schema from "../../../model/described.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import { type Admin, LIMIT, LISTED_BY_DEFAULT } from "../operation.ts";

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
    answers: answer.queried(answer.json(200, "The groups, the largest first.", schema.fromCells(FAILURES))),
    async work({ limit = LISTED_BY_DEFAULT, ...filter }) {
      const { groups, ...rest } = await overview.failures(filter);
      return { groups: groups.slice(0, limit), ...rest };
    },
  });

export const showBlockedKeys = ({ read, overview }: Admin) =>
  read("admin_blocked_keys", {
    summary: "Show the keys that wait behind a failed row",
    description: "Those whose retry is due first, then those behind parked rows.",
    query: { limit: LIMIT },
    answers: answer.queried(answer.json(200, "The keys.", schema.fromCells({ keys: [schema.list(BLOCKED_KEY), []] }))),
    work: async ({ limit = LISTED_BY_DEFAULT }) => ({ keys: await overview.blockedKeys(limit) }),
  });
