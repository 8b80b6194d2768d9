import * as answer from "../../openapi/answers.ts";
import * as schema from "../../openapi/schemas.ts";
import { type Admin, LIMIT, LISTED_BY_DEFAULT } from "../operation.ts";

const { TEXT, TEXT_OR_NULL, TIME_OR_NULL, UUID } = schema;

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
