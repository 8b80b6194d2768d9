import { parseText } from "../../core/finished/requests.ts";
import type { Overview } from "../../core/operations/overview.ts";
import { StoreError } from "../../model/errors.ts";
import type { OperationsStore } from "../../ports/operationsStore.ts";
import { ERRORS } from "../respond.ts";
import { type AdminRequest, queryParameters, Refusal } from "./requests.ts";

/** `GET /admin/overview`, `/failures`, `/blocked-keys` and `/audit`: the whole installation at a glance. */

export const MOST_MINUTES = 1440;
/** Most entries or keys of an answer. */
export const MOST_LISTED = 500;
const MINUTES_BY_DEFAULT = 60;
const LISTED_BY_DEFAULT = 50;

export const parseOverviewQuery = ({ url }: AdminRequest): number =>
  queryParameters(url)("minutes", wholeNumber(MOST_MINUTES)) ?? MINUTES_BY_DEFAULT;

export function showOverview(overview: Pick<Overview, "read">) {
  return async (minutes: number): Promise<object> => await overview.read(minutes);
}

export function parseFailuresQuery({ url }: AdminRequest) {
  const parameter = queryParameters(url);
  return {
    filter: { state: parameter("state", parseFailureState), destination: parameter("destination", parseText) },
    limit: parameter("limit", wholeNumber(MOST_LISTED)) ?? LISTED_BY_DEFAULT,
  };
}

export function showFailures(overview: Pick<Overview, "failures">) {
  return async ({ filter, limit }: ReturnType<typeof parseFailuresQuery>): Promise<object> => {
    const { groups, ...read } = await overview.failures(filter);
    return { groups: groups.slice(0, limit), ...read };
  };
}

export const parseLimitQuery = ({ url }: AdminRequest): number =>
  queryParameters(url)("limit", wholeNumber(MOST_LISTED)) ?? LISTED_BY_DEFAULT;

export function showBlockedKeys(overview: Pick<Overview, "blockedKeys">) {
  return async (limit: number): Promise<object> => ({ keys: await overview.blockedKeys(limit) });
}

export function parseAuditQuery({ url }: AdminRequest) {
  const parameter = queryParameters(url);
  return {
    before: parameter("cursor", parseSequence) ?? null,
    limit: parameter("limit", wholeNumber(MOST_LISTED)) ?? LISTED_BY_DEFAULT,
  };
}

export function showAudit(store: Pick<OperationsStore, "audit">) {
  return async ({ before, limit }: ReturnType<typeof parseAuditQuery>): Promise<object> => {
    try {
      const entries = await store.audit(before, limit);
      return { entries, cursor: entries.length < limit ? null : (entries.at(-1)?.id ?? null) };
    } catch (error) {
      if (error instanceof StoreError && error.code === "schema") throw new Refusal(501, ERRORS.noAuditTable);
      throw error;
    }
  };
}

function parseFailureState(text: string): "dead" | "parked" {
  if (text === "dead" || text === "parked") return text;
  throw new Error("dead or parked is expected");
}

/** The `cursor` of the audit log is the id of an entry. */
function parseSequence(text: string): string {
  if (/^\d{1,18}$/.test(text)) return text;
  throw new Error("the cursor of an answer is expected, as it came");
}

function wholeNumber(most: number): (text: string) => number {
  return (text) => {
    const value = /^\d{1,5}$/.test(text) ? Number(text) : 0;
    if (value >= 1 && value <= most) return value;
    throw new Error(`a whole number from 1 to ${most} is expected`);
  };
}
