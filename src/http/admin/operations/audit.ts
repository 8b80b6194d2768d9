import type { Syntax } from "../../../core/operations/syntax.ts";
import * as schema from "../../../model/described.ts";
import { ERRORS } from "../../exchange.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import { type Admin, LIMIT, LISTED_BY_DEFAULT, onTable } from "../operation.ts";

const { TEXT, TEXT_OR_NULL, TIME_OR_NULL } = schema;

const ENTRY = schema.object({
  id: TEXT,
  at: TIME_OR_NULL,
  actor: TEXT,
  action: TEXT,
  target: TEXT_OR_NULL,
  detail: TEXT_OR_NULL,
});

/** The id of an entry. */
const CURSOR_FORM = /^[0-9]{1,18}$/;

const CURSOR: Syntax<string> = {
  parse(text) {
    if (CURSOR_FORM.test(text)) return text;
    throw new Error("the cursor of an answer is expected, as it came");
  },
  schema: { type: "string", pattern: CURSOR_FORM.source },
};

export const showAudit = ({ read, operations }: Admin) =>
  read("admin_audit", {
    summary: "Show what operators did",
    description: "Newest first, of the last 90 days.",
    query: { limit: LIMIT, cursor: field.inQuery(CURSOR, "The `cursor` of the page before.") },
    answers: answer.queried(
      answer.json(
        200,
        "A page of entries.",
        schema.fromCells({ entries: [schema.list(ENTRY), []], cursor: TEXT_OR_NULL }),
      ),
      answer.error(501, "The table of the audit log cannot be read.", ERRORS.noAuditTable),
    ),
    work: ({ cursor, limit = LISTED_BY_DEFAULT }) =>
      onTable(ERRORS.noAuditTable, async () => {
        const entries = await operations.audit(cursor ?? null, limit);
        return { entries, cursor: entries.length < limit ? null : (entries.at(-1)?.id ?? null) };
      }),
  });
