import { createStore } from "../../roles/database.ts";
import { createParked } from "../../roles/finishedRows.ts";
import type { Parked } from "../core/finished/parked.ts";
import type { ParkedSelection } from "../core/finished/requests.ts";
import { createRedactor } from "../core/redaction/redact.ts";
import { parkedRowShown } from "../http/admin/parked.ts";
import type { ParkedRow } from "../ports/parkedStore.ts";
import { systemClock } from "../time/clock.ts";
import type { CommandIo } from "./config.ts";
import { type Columns, operator, plainText, textTable } from "./io.ts";
import { type Prepared, prepare, untilSignalled } from "./run.ts";

interface ParkedArguments {
  /** `--config` */
  readonly file: string | undefined;
  readonly selection: ParkedSelection;
}

/** Characters; far above what the options admit. */
const LONGEST_NOTE = 2000;

/** `svc parked list`. @throws ConfigError, StoreError when no database answers */
export async function listParked(
  { limit, json, ...args }: ParkedArguments & { readonly limit: number; readonly json: boolean },
  io: CommandIo,
): Promise<void> {
  await withParked(args, io, async (parked) => {
    // One more than is shown tells whether there are more.
    const found = await parked.list(args.selection, limit + 1);
    const rows = found.slice(0, limit);
    if (json) return rows.map((row) => `${JSON.stringify(parkedRowShown(row))}\n`).join("");
    if (rows.length === 0) return "no row is parked that matches\n";
    const more = found.length > limit ? `the first ${limit}; --limit shows more\n` : "";
    return `${textTable(rows, COLUMNS)}${more}`;
  });
}

/** `svc parked retry`. @throws as {@link listParked}, and ParkedInterruptedError */
export async function retryParked(args: ParkedArguments, io: CommandIo): Promise<void> {
  await withParked(args, io, async (parked, signal) => {
    return `${rowsOf(await parked.retry(args.selection, operator(), signal))} due again\n`;
  });
}

/** `svc parked discard`. @throws as {@link retryParked} */
export async function discardParked(args: ParkedArguments & { readonly reason: string }, io: CommandIo): Promise<void> {
  await withParked(args, io, async (parked, signal) => {
    return `${rowsOf(await parked.discard(args.selection, operator(), args.reason, signal))} dead\n`;
  });
}

/** Waits for the database, checks the tables, does the work and prints its result. A signal ends it between two batches, with exit code 1. */
async function withParked(
  { file }: Pick<ParkedArguments, "file">,
  io: CommandIo,
  use: (parked: Parked, signal: AbortSignal) => Promise<string>,
): Promise<void> {
  const prepared = prepare({ env: io.env, file, roles: [], once: false });
  await untilSignalled(prepared, io, (signal) => work(prepared, io, signal, use));
}

async function work(
  { config, running, secrets }: Prepared,
  { stdout }: CommandIo,
  signal: AbortSignal,
  use: (parked: Parked, signal: AbortSignal) => Promise<string>,
): Promise<void> {
  const { log, flush } = running;
  const redact = createRedactor(secrets, LONGEST_NOTE);
  const store = await createStore(config, systemClock, log);
  try {
    await store.waitUntilReady(config.database.startupTimeoutMs, signal);
    await store.schema.checkColumns(["outbox"]);
    const result = await use(createParked({ store, redact, log }), signal);
    // The lines for people come last.
    flush();
    stdout.write(result);
  } finally {
    await store.close();
  }
}

function rowsOf(count: number): string {
  return count === 1 ? "1 row is" : `${count} rows are`;
}

const COLUMNS: Columns<ParkedRow> = [
  ["id", (row) => row.id],
  ["sequence", (row) => row.sequence],
  ["topic", (row) => plainText(row.topic ?? "", 40)],
  ["key", (row) => plainText(row.key ?? "", 40)],
  ["attempts", (row) => String(row.attempt)],
  ["parked", (row) => row.parkedAt?.toISOString() ?? ""],
  ["last error", (row) => plainText(row.lastError ?? "", 80)],
];
