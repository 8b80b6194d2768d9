import { readFileSync } from "node:fs";
import type { TestDatabase } from "../support/databases.ts";

/** The cases that every client passes: clients/contract/cases.json, as their runners read them. */

interface BaseCase {
  readonly id: string;
  readonly about: string;
}

/** A message in the file; `$repeat` stands for a long text, `$surrogate` for half of a pair. */
type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };
type CaseMessage = Readonly<Record<string, Json>>;

export interface EnqueueCase extends BaseCase {
  readonly kind: "enqueue";
  readonly setup?: readonly string[];
  readonly options?: {
    readonly schema?: string;
    readonly table?: string;
    readonly cells?: readonly string[];
    readonly columns?: Readonly<Record<string, string>>;
  };
  readonly steps: readonly Step[];
  readonly rows?: readonly Readonly<Record<string, unknown>>[];
  readonly rowsByCell?: Readonly<Record<string, readonly (string | null)[]>>;
}

export interface Step {
  readonly begin?: true;
  readonly commit?: true;
  readonly rollback?: true;
  readonly savepoint?: string;
  readonly rollbackTo?: string;
  readonly enqueue?: CaseMessage;
  readonly enqueueMany?: readonly CaseMessage[];
  /** The code of the refusal. */
  readonly error?: string;
  /** The id, or `increasing-v7`. */
  readonly returns?: string;
  /** `traceparent` of the active span. */
  readonly span?: string;
}

export interface WorkerCase extends BaseCase {
  readonly kind: "worker";
  /** Default: both. */
  readonly transports?: readonly ("sql" | "http")[];
  readonly messages: readonly { readonly id: string; readonly aggregate: string | null }[];
  /**
   * What the handler does at each call for a message; the last entry holds for all further calls; `*` for every
   * message: `ok`, `fail`, `dead`, `wait:<ms>`, `until-cancelled`, `write`, `write-then-fail`. Default `ok`.
   */
  readonly handler: Readonly<Record<string, readonly string[]>>;
  /** The inbox in the end, by the id. `http` replaces what holds over HTTP. */
  readonly states: Readonly<Record<string, State & { readonly http?: State }>>;
  /** The calls of the handler by aggregate. */
  readonly order?: Readonly<Record<string, readonly string[]>>;
  readonly worker?: {
    readonly concurrency?: number;
    readonly leaseMs?: number;
    readonly retryDelayMs?: number;
    readonly maxAttempts?: number;
    readonly stopTimeoutMs?: number;
  };
  readonly workers?: number;
  readonly events?: readonly { readonly whenStarted: string; readonly sql: string }[];
  readonly stopWhenStarted?: string;
  readonly cancelled?: readonly string[];
  /** What handlers have written and committed. */
  readonly written?: readonly string[];
  /** By how much the clock of the client is wrong. */
  readonly clockOffsetMs?: number;
}

interface State {
  readonly state: "pending" | "processed" | "dead";
  readonly attempt: number;
  readonly lastError?: string;
}

export interface OnceCase extends BaseCase {
  readonly kind: "once";
  readonly calls: readonly (
    | { readonly message: string; readonly end: "commit" | "rollback"; readonly runs: boolean }
    | { readonly forgetOlderThanMs: number }
  )[];
}

export const CASES = (
  JSON.parse(readFileSync(new URL("../../clients/contract/cases.json", import.meta.url), "utf8")) as {
    readonly cases: readonly (EnqueueCase | WorkerCase | OnceCase)[];
  }
).cases;

/** A message with its long texts. */
export function written(message: CaseMessage): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    Object.entries(message).map(([name, value]) => [name, name === "payload" ? value : text(value)]),
  );
}

function text(value: Json): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  const { $repeat, $surrogate, quoted } = value as { $repeat?: [string, number]; $surrogate?: true; quoted?: true };
  if ($surrogate) return "a\ud83d";
  if ($repeat === undefined) return value;
  const repeated = $repeat[0].repeat($repeat[1]);
  return quoted ? `"${repeated}"` : repeated;
}

/** The rows of an outbox as cases name their columns. @param columns otherwise called ones */
export async function shown(
  database: TestDatabase,
  { options = {} }: EnqueueCase,
): Promise<readonly Record<string, unknown>[]> {
  const { schema = "public", table = "outbox", columns = {} } = options;
  const quote = (name: string) => `"${name.replaceAll('"', '""')}"`;
  const iso = (column: string) => `to_char(${column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;
  const payload = quote(columns.payload ?? "payload");
  return await database.query(
    `SELECT id::text, topic, length(topic) AS "topicLength", ${quote(columns.key ?? "key")} AS key, ${payload} AS payload, length(${payload}) AS "payloadLength",
       headers, destination, state, ${iso("scheduled_at")} AS "scheduledAt", ${iso("expires_at")} AS "expiresAt"
     FROM ${quote(schema)}.${quote(table)} ORDER BY sequence`,
  );
}
