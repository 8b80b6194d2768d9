import { deliveryId, destinationsIn } from "../../../model/deliveries.ts";
import { withoutTable } from "../../../model/errors.ts";
import type { MessageId } from "../../../model/rows.ts";
import { COUNTERS, type Figures, type MinuteFigures, type OperationsStore } from "../../../ports/operationsStore.ts";
import type { CellIdentity, SchemaStore } from "../../../ports/store.ts";
import {
  dateOf,
  idsOf,
  LONGEST_NAME,
  type Named,
  numberOf,
  type Row,
  routedAgain,
  routedRow,
  type StatementRunner,
  storable,
  textOf,
} from "./rows.ts";

/**
 * `beat` takes the process, and `figures`, a JSON array whose rows it changes in the order of their keys. `partlyDead`
 * answers with the messages of the deliveries among the rows that died last, `sent` with those of some sent rows.
 */
export type OperationsStatements<S> = Named<
  S,
  "beat" | "leave" | "processes" | "figures" | "addAudit" | "audit" | "deadRows" | "blockedKeys" | "inboxBacklog"
> &
  Named<S, "partlyDead" | "sent">;

export function operationsStore<S>(runner: StatementRunner<S>, sql: OperationsStatements<S>): OperationsStore {
  return {
    async beat({ name, version, roles, clockAheadMs = 0, routes, upMs }, counted) {
      const beside = [
        LISTS,
        ...(clockAheadMs === 0 ? [] : [`${CLOCK_AHEAD}${Math.round(clockAheadMs)}`]),
        ...(routes === undefined ? [] : [`${ROUTES}${routes}`]),
      ];
      const process = {
        name: storable(name, LONGEST_NAME),
        version: storable(version, LONGEST_WORD),
        roles: [...roles, ...beside].join(" "),
        upMs: Math.round(Math.max(0, upMs)),
      };
      const figures = counted.map((each) => ({ ...each, name: storable(each.name, LONGEST_NAME) }));
      const [row] = await runner.run(sql.beat, { ...process, figures: JSON.stringify(figures) });
      const others = (textOf(row?.all_roles) ?? "").split(",").filter((each) => each !== "");
      const wordsOf = others.map((each) => each.split(" "));
      const words = wordsOf.flat().filter((word) => word.startsWith(ROUTES));
      return {
        pollers: numberOf(row?.pollers, 0),
        relays: numberOf(row?.relays, 0),
        routes: [...new Set(words.map((word) => word.slice(ROUTES.length)))],
        withoutLists: wordsOf.filter((each) => !each.includes(LISTS)).length,
        at: dateOf(row?.at),
      };
    },

    async leave(name) {
      await runner.run(sql.leave, { name: storable(name, LONGEST_NAME) });
    },

    async processes() {
      return (await runner.run(sql.processes)).map((row) => {
        const words = String(row.roles).split(" ");
        const ahead = words.find((word) => word.startsWith(CLOCK_AHEAD));
        return {
          name: String(row.name),
          version: String(row.version),
          roles: words.filter((word) => !["", ahead, LISTS].includes(word) && !word.startsWith(ROUTES)),
          clockAheadMs: ahead === undefined ? 0 : Number(ahead.slice(CLOCK_AHEAD.length)),
          startedAt: dateOf(row.started_at),
          seenAt: dateOf(row.seen_at),
        };
      });
    },

    async figures(minutes) {
      return (await runner.run(sql.figures, { minutes })).map(minuteFigures);
    },

    async addAudit({ actor, action, target, detail }) {
      await runner.run(sql.addAudit, {
        actor: storable(actor, LONGEST_NAME),
        action: storable(action, LONGEST_WORD),
        target: target === null ? null : storable(target, LONGEST_NAME),
        detail: detail === null ? null : storable(detail),
      });
    },

    async audit(before, limit) {
      return (await runner.run(sql.audit, { before, limit })).map((row) => ({
        id: String(row.id),
        at: dateOf(row.at),
        actor: String(row.actor),
        action: String(row.action),
        target: textOf(row.target),
        detail: textOf(row.detail),
      }));
    },

    async deadRows(limit) {
      return (await runner.run(sql.deadRows, { limit })).map((row) => ({
        id: row.id as MessageId,
        ...routedAgain(row),
        diedAt: dateOf(row.updated_at),
        lastError: textOf(row.last_error),
      }));
    },

    async partlyDead(limit) {
      const messages = (await runner.run(sql.partlyDead, { limit })).map((row) =>
        (destinationsIn(row.expanded_to) ?? []).map((destination) => deliveryId(row.id as MessageId, destination)),
      );
      if (messages.length === 0) return 0;
      const sent = new Set(idsOf(await runner.run(sql.sent, { ids: messages.flat().slice(0, MOST_IDS) })));
      return messages.filter((deliveries) => deliveries.some((id) => sent.has(id))).length;
    },

    async blockedKeys(limit, behindLimit) {
      return (await runner.run(sql.blockedKeys, { limit, behindLimit })).map((row) => {
        const isParked = Number(row.is_parked) === 1;
        return {
          key: String(row.key),
          id: row.id as MessageId,
          ...routedRow(row),
          isParked,
          attempt: numberOf(row.attempt, 0),
          dueAt: isParked ? null : dateOf(row.scheduled_at),
          lastError: textOf(row.last_error),
          rowsBehind: numberOf(row.rows_behind, 0),
        };
      });
    },

    async inboxBacklog(pullSources, limit) {
      return (await runner.run(sql.inboxBacklog, { pullSources, limit })).map((row) => ({
        source: String(row.source),
        pending: numberOf(row.pending, 0),
        oldestAgeMs: row.age_ms === null ? null : Math.max(0, Number(row.age_ms)),
      }));
    },
  };
}

const LONGEST_WORD = 100;
/** Deliveries of one look: it may miss messages of lists of many destinations. */
const MOST_IDS = 10_000;
/** Beside the roles of a process, before a number of ms. */
const CLOCK_AHEAD = "clock:";
/** Its version knows messages with several destinations. */
const LISTS = "lists";
/** The same before the hash of its routes. */
const ROUTES = "routes:";

function minuteFigures(row: Row): MinuteFigures {
  const counts = Object.fromEntries(COUNTERS.map((counter) => [counter, numberOf(row[counter], 0)]));
  return {
    ...(counts as Record<(typeof COUNTERS)[number], number>),
    minute: dateOf(row.minute) ?? new Date(0),
    kind: row.kind as Figures["kind"],
    name: String(row.name),
  };
}

/** `read` answers `position`, `name` and `cells`; `unfinished` answers `found`. */
export type CellStatements<S> = Named<S, "read" | "add" | "unfinished">;

export function cellOfDatabase<S>(
  runner: StatementRunner<S>,
  sql: CellStatements<S>,
): Pick<SchemaStore, "cell" | "hasUnfinished"> {
  const read = async (): Promise<CellIdentity | undefined> => {
    const [row] = await runner.run(sql.read);
    return row && { position: numberOf(row.position, 0), name: String(row.name), cells: numberOf(row.cells, 0) };
  };
  return {
    async cell(own) {
      if (own === undefined) return await read().catch(withoutTable);
      const stored = await read();
      if (stored !== undefined) return stored;
      await runner.run(sql.add, { ...own });
      return await read();
    },

    async hasUnfinished() {
      const [row] = (await runner.run(sql.unfinished).catch(withoutTable)) ?? [];
      return row?.found === true || row?.found === 1;
    },
  };
}
