import type { TableNames } from "./names.ts";

/** Finished rows that one index holds in the order in which retention deletes them. */
export interface Walk {
  readonly table: string;
  readonly id: string;
  readonly state: string;
  /** Finished states as SQL literals: a parameter in their place would keep the database from the partial (filtered) index. */
  readonly states: string;
  /** The time that counts, and what orders rows of the same time: together the position of a row. */
  readonly time: string;
  readonly tie: string;
  readonly tieType: string;
}

/** How a database writes them. */
export interface Dialect {
  readonly text: (literal: string) => string;
  readonly uuidType: string;
}

/** A full look at an index of many million entries, which a large `maxCount` asks for once a sweep. */
export const COUNT_TIMEOUT_MS = 300_000;

/** @param names already quoted */
export function finishedWalks(names: TableNames, { text, uuidType }: Dialect) {
  const outbox = (state: "sent" | "dead"): Walk => ({
    table: names.outboxTable,
    id: names.outbox.id,
    state: names.outbox.state,
    states: `(${text(state)})`,
    time: names.outbox.updatedAt,
    tie: names.outbox.sequence,
    tieType: "bigint",
  });
  const inbox: Walk = {
    table: names.inboxTable,
    id: names.inbox.id,
    state: names.inbox.state,
    states: `(${text("processed")}, ${text("dead")})`,
    time: names.inbox.createdAt,
    tie: names.inbox.id,
    tieType: uuidType,
  };
  return { sent: outbox("sent"), dead: outbox("dead"), inbox };
}
