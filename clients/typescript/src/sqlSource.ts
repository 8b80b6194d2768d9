import { randomUUID } from "node:crypto";
import type { EventEmitter } from "node:events";
import { CLAIM, COMPLETE, DEAD, RELEASE, RENEW, RETRY } from "./pullStatements.ts";
import type { Claim, PulledMessage, PullSource } from "./worker.ts";

interface Queryable {
  query(text: string, values?: unknown[]): Promise<{ readonly rows: readonly Readonly<Record<string, unknown>>[] }>;
}
/** A `PoolClient` of pg. */
export interface SqlClient extends Queryable, Partial<Pick<EventEmitter, "on" | "off">> {
  release(error?: boolean): void;
}
/** A `Pool` of pg, with a connection for each message at a time and one to spare for renewals. */
export interface SqlPool<C extends SqlClient> extends Queryable {
  connect(): Promise<C>;
}

export interface SqlSourceOptions<C extends SqlClient> {
  readonly pool: SqlPool<C>;
  /** A source with `consumption: pull`. */
  readonly source: string;
  /** Claims after which a message is dead; default 5. */
  readonly maxAttempts?: number;
}

/** Messages of the inbox of PostgreSQL. The handler's transaction is at the isolation level of the database. */
export function sqlSource<C extends SqlClient>({ pool, source, maxAttempts = 5 }: SqlSourceOptions<C>): PullSource<C> {
  const run = async (text: string, values: unknown[]) => (await pool.query(text, values)).rows;
  return {
    async claim(max, leaseMs) {
      const token = randomUUID();
      const rows = await run(CLAIM, [source, max, token, leaseMs, maxAttempts]);
      return { token, messages: rows.map(messageOf) };
    },

    async renew({ token }, _, leaseMs) {
      return new Set((await run(RENEW, [source, token, leaseMs])).map(({ id }) => String(id)));
    },

    async handled({ token }, id, handle) {
      const client = await pool.connect();
      // A connection that breaks between two statements would end the process; the next statement fails.
      client.on?.("error", ignore);
      let isBroken = true;
      try {
        await client.query("BEGIN");
        await handle(client);
        const { rows } = await client.query(COMPLETE, [source, token, [id]]);
        await client.query(rows.length === 1 ? "COMMIT" : "ROLLBACK");
        isBroken = false;
        return rows.length === 1;
      } finally {
        // The end of its connection ends a transaction that failed.
        client.release(isBroken);
        if (!isBroken) client.off?.("error", ignore);
      }
    },

    async retry({ token }, id, delayMs, reason) {
      const values = [source, token, id, Math.round(delayMs), reason, maxAttempts];
      const own = (await run(RETRY, values)).find((row) => row.id === id);
      return own === undefined ? "lost" : own.state === "dead" ? "dead" : "retry";
    },
    async dead({ token }, id, reason) {
      return (await run(DEAD, [source, token, id, reason])).length > 0 ? "dead" : "lost";
    },
    async release({ token }: Claim) {
      await run(RELEASE, [source, token]);
    },
  };
}

const ignore = () => {};

function messageOf(row: Readonly<Record<string, unknown>>): PulledMessage {
  const json = String(row.payload);
  return {
    id: String(row.id),
    aggregateId: row.aggregate_id as string | null,
    eventType: row.event_type as string | null,
    idempotencyKey: String(row.idempotency_key),
    correlationId: row.correlation_id as string | null,
    attempt: Number(row.attempt),
    headers: row.headers as PulledMessage["headers"],
    json,
    payload: parsed(json),
  };
}

/** The value; the text itself if it is no JSON. */
export function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return json;
  }
}
