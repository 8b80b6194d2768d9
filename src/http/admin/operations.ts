import type { Overview } from "../../core/operations/overview.ts";
import { StoreError } from "../../model/errors.ts";
import type { OperationsStore } from "../../ports/operationsStore.ts";
import { ERRORS } from "../respond.ts";
import { choice, numberParameter, textParameter, type ValuesOf } from "./query.ts";
import { Refusal } from "./requests.ts";

/** `GET /admin/overview`, `/failures`, `/blocked-keys` and `/audit`: the whole installation at a glance. */

const MINUTES_BY_DEFAULT = 60;
const LISTED_BY_DEFAULT = 50;

export const OVERVIEW_QUERY = { minutes: numberParameter(1440, "How many minutes of figures; 60 by default.") };

export function showOverview(overview: Pick<Overview, "read">) {
  return async ({ minutes = MINUTES_BY_DEFAULT }: ValuesOf<typeof OVERVIEW_QUERY>): Promise<object> =>
    await overview.read(minutes);
}

export const LIMIT_QUERY = { limit: numberParameter(500, "Most of them; 50 by default.") };

export const FAILURES_QUERY = {
  state: choice(["dead", "parked"], "Only dead or only parked rows."),
  destination: textParameter("Only rows that the routes send to this destination."),
  ...LIMIT_QUERY,
};

export function showFailures(overview: Pick<Overview, "failures">) {
  return async ({ limit = LISTED_BY_DEFAULT, ...filter }: ValuesOf<typeof FAILURES_QUERY>): Promise<object> => {
    const { groups, ...read } = await overview.failures(filter);
    return { groups: groups.slice(0, limit), ...read };
  };
}

export function showBlockedKeys(overview: Pick<Overview, "blockedKeys">) {
  return async ({ limit = LISTED_BY_DEFAULT }: ValuesOf<typeof LIMIT_QUERY>): Promise<object> => ({
    keys: await overview.blockedKeys(limit),
  });
}

/** The `cursor` of the audit log is the id of an entry. */
const SEQUENCE = /^[0-9]{1,18}$/;

function parseSequence(text: string): string {
  if (SEQUENCE.test(text)) return text;
  throw new Error("the cursor of an answer is expected, as it came");
}

export const AUDIT_QUERY = {
  ...LIMIT_QUERY,
  cursor: {
    parse: parseSequence,
    schema: { type: "string", pattern: SEQUENCE.source },
    description: "The `cursor` of the page before.",
  },
};

export function showAudit(store: Pick<OperationsStore, "audit">) {
  return async ({ cursor, limit = LISTED_BY_DEFAULT }: ValuesOf<typeof AUDIT_QUERY>): Promise<object> => {
    try {
      const entries = await store.audit(cursor ?? null, limit);
      return { entries, cursor: entries.length < limit ? null : (entries.at(-1)?.id ?? null) };
    } catch (error) {
      if (error instanceof StoreError && error.code === "schema") throw new Refusal(501, ERRORS.noAuditTable);
      throw error;
    }
  };
}
