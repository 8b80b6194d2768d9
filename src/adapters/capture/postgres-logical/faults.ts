import pg from "pg";
import { errorText } from "../../../model/errors.ts";

/** What can be wrong with logical replication, in words for the person who must fix it. */

export interface Names {
  readonly schema: string;
  readonly table: string;
  /** Column of the table that is enough to publish. */
  readonly idColumn: string;
  readonly publication: string;
  readonly slot: string;
  readonly username: string;
}

/** A fault that a person must fix: a retry alone does not help. */
export class Misconfigured extends Error {
  override readonly name = "Misconfigured";
}

/** Error codes: PostgreSQL documentation, appendix A. */
const OBJECT_IN_USE = "55006";
const WRONG_STATE = "55000";
const NO_RIGHT = "42501";
const UNDEFINED_OBJECT = "42704";
const LIMIT_REACHED = "53400";
const TOO_MANY_CONNECTIONS = "53300";
export const QUERY_CANCELED = "57014";

export function sqlState(error: unknown): string | undefined {
  return error instanceof pg.DatabaseError ? error.code : undefined;
}

export function connectFault(
  error: unknown,
  server: {
    readonly endpoints: readonly { readonly host: string; readonly port: number }[];
    readonly username: string;
  },
): Error {
  const [endpoint] = server.endpoints;
  const where = `${endpoint?.host}:${endpoint?.port}`;
  const what = `cannot connect to ${where} for capture: ${described(error)}`;
  switch (sqlState(error)) {
    case NO_RIGHT:
      return new Error(`${what}. ${grantReplication(server.username)}`);
    case TOO_MANY_CONNECTIONS:
      return new Error(`${what}. Raise max_wal_senders (or max_connections) of the server`);
    default:
      return new Error(`${what}. Capture needs a direct connection to the server, no pooler`);
  }
}

/** An error while the slot was read or made, or while the log was streamed. */
export function slotFault(error: unknown, names: Names): Error {
  const what = `replication slot ${names.slot}: ${described(error)}`;
  switch (sqlState(error)) {
    case NO_RIGHT:
      return new Error(`${what}. ${grantReplication(names.username)}`);
    case OBJECT_IN_USE:
      return new Error(
        `${what}. One process at a time captures: set outbox.capture.enabled to false in the others, or name another outbox.capture.slot. A connection that was cut off ends after wal_sender_timeout of the server`,
      );
    case LIMIT_REACHED:
      return new Error(`${what}. Raise max_replication_slots of the server, or drop an unused slot`);
    case UNDEFINED_OBJECT:
      // A decoder sees the catalogue as it was when the log was written.
      return new Error(
        `${what}. When this stays, the slot still has to read log from before the publication was made. ${dropSlot(names.slot)}`,
      );
    case WRONG_STATE:
      return new Error(`${what}. If the server no longer has the log that the slot needs: ${dropSlot(names.slot)}`);
    default:
      return new Error(what);
  }
}

export function walLevelTooLow(found: string): Misconfigured {
  return new Misconfigured(
    `wal_level of the server is ${found}, and logical replication needs logical: run ALTER SYSTEM SET wal_level = 'logical' and restart the server (a managed one has a parameter for it, such as rds.logical_replication)`,
  );
}

export function isStandby(host: string): Misconfigured {
  return new Misconfigured(
    `${host} is a standby: capture needs the primary. Point outbox.capture.connection.hostname to it, or to a name that follows it`,
  );
}

export function noTable(names: Names): Misconfigured {
  return new Misconfigured(
    `there is no table ${qualified(names)}: outbox.capture.schema must be the schema of the outbox table (database.outboxTableName)`,
  );
}

/** @param columnList whether the server takes a list of columns for this table */
export function noPublication(names: Names, columnList: boolean): Misconfigured {
  // Without the payload the server has less to decode and to send.
  const columns = columnList ? ` (${pg.escapeIdentifier(names.idColumn)})` : "";
  return new Misconfigured(
    `there is no publication ${names.publication}, and the service makes none. As the owner of the table run: CREATE PUBLICATION ${pg.escapeIdentifier(names.publication)} FOR TABLE ${qualified(names)}${columns} WITH (publish = 'insert')`,
  );
}

export function notPublished(names: Names): Misconfigured {
  return new Misconfigured(
    `the publication ${names.publication} does not hold the table ${qualified(names)}. Run: ALTER PUBLICATION ${pg.escapeIdentifier(names.publication)} ADD TABLE ${qualified(names)}`,
  );
}

export function insertsNotPublished(names: Names): Misconfigured {
  return new Misconfigured(
    `the publication ${names.publication} does not publish inserts. Run: ALTER PUBLICATION ${pg.escapeIdentifier(names.publication)} SET (publish = 'insert')`,
  );
}

export function foreignSlot(names: Names, found: string, expected: string): Misconfigured {
  return new Misconfigured(
    `the replication slot ${names.slot} has another owner: it is ${found}, and ${expected} is needed. Name another slot in outbox.capture.slot`,
  );
}

export function lostSlot(names: Names, reason: string | null): Misconfigured {
  const why = reason === null ? "" : `, ${reason}`;
  return new Misconfigured(
    `the replication slot ${names.slot} is lost${why}: the server no longer has the log that it needs. Outbox rows are still found by polling. ${dropSlot(names.slot)}`,
  );
}

export function slotNotMade(
  names: Names,
  oldest: { readonly pid: number; readonly seconds: number } | undefined,
): Error {
  const who =
    oldest === undefined ? "" : `; the oldest is open for ${oldest.seconds} s in the server process ${oldest.pid}`;
  return new Error(
    `the replication slot ${names.slot} is not made yet: the server waits for the transactions that were open before${who}. End it, or wait`,
  );
}

function dropSlot(slot: string): string {
  return `To start anew run: SELECT pg_drop_replication_slot(${pg.escapeLiteral(slot)}). The service then makes a new slot by itself`;
}

function grantReplication(username: string): string {
  return `The user needs the right to replicate: ALTER ROLE ${pg.escapeIdentifier(username)} REPLICATION (managed servers have a role for it, such as rds_replication)`;
}

function qualified({ schema, table }: Pick<Names, "schema" | "table">): string {
  return `${pg.escapeIdentifier(schema)}.${pg.escapeIdentifier(table)}`;
}

/** Without the driver's details, which hold values of rows and statements that belong in no log. */
function described(error: unknown): string {
  return error instanceof pg.DatabaseError ? `${error.message} (SQLSTATE ${error.code})` : errorText(error);
}
