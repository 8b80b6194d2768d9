import { createStore } from "../../roles/database.ts";
import { didYouMean } from "../config/kinds.ts";
import type { Config } from "../config/types.ts";
import { DestinationControl, type DestinationOverview } from "../core/destinations/control.ts";
import { ConfigError } from "../model/errors.ts";
import { systemClock } from "../time/clock.ts";
import type { CommandIo } from "./config.ts";
import { type Columns, plainText, textTable } from "./io.ts";
import { prepare } from "./run.ts";

interface DestinationArguments {
  /** `--config` */
  readonly file: string | undefined;
}

interface ChangeArguments extends DestinationArguments {
  readonly name: string;
  /** Who makes the change. */
  readonly by: string;
}

/**
 * `svc destinations list`: without the table of the destinations, too.
 *
 * @throws ConfigError for a bad configuration, StoreError when no database answers
 */
export async function listDestinations(
  { file, json }: DestinationArguments & { readonly json: boolean },
  io: CommandIo,
): Promise<void> {
  await withControl(file, io, { isChange: false }, async (control) => {
    const destinations = await control.list();
    io.stdout.write(json ? `${JSON.stringify({ destinations }, null, 2)}\n` : tableOf(destinations));
  });
}

/**
 * How a destination is doing, on one line: its state, and what waits for it.
 *
 * @param name of a configured destination
 * @throws as {@link listDestinations}
 */
export async function destinationState(file: string | undefined, name: string, io: CommandIo): Promise<string> {
  let text = "";
  await withControl(file, io, { isChange: false }, async (control) => {
    const row = (await control.list()).find((each) => each.name === name);
    if (row === undefined) return;
    const oldest = row.oldestAgeMs === null ? "" : `, the oldest due for ${ageOf(row.oldestAgeMs)}`;
    text = `${stateText(row)}; ${row.backlog} rows wait${oldest}, ${row.inFlight} are in flight`;
  });
  return text;
}

/**
 * `svc destinations pause`.
 *
 * @param args `forMs`: undefined for until it is resumed
 * @throws ConfigError for a bad configuration, an unknown destination, or when there is no table to keep the pause in
 */
export async function pauseDestination(
  { file, name, by, reason, forMs }: ChangeArguments & { readonly reason: string; readonly forMs: number | undefined },
  io: CommandIo,
): Promise<void> {
  await withControl(file, io, { isChange: true, name }, async (control) => {
    await control.pause(name, { reason, forMs }, by);
    const until = forMs === undefined ? "" : ` for ${ageOf(forMs)}`;
    return `${name} is paused${until}`;
  });
}

/** `svc destinations resume`. @throws as {@link pauseDestination} */
export async function resumeDestination({ file, name, by }: ChangeArguments, io: CommandIo): Promise<void> {
  await withControl(file, io, { isChange: true, name }, async (control) =>
    (await control.resume(name, by)) ? `${name} is resumed` : `${name} was not paused`,
  );
}

/** @param work gives the line for people, which comes behind the log */
async function withControl(
  file: string | undefined,
  { env, stdout }: CommandIo,
  change: { readonly isChange: false } | { readonly isChange: true; readonly name: string },
  // biome-ignore lint/suspicious/noConfusingVoidType: a list writes by itself
  work: (control: DestinationControl) => Promise<string | void>,
): Promise<void> {
  const { config, running } = prepare({ env, file, roles: [], once: false });
  const { log, flush } = running;
  if (change.isChange) checkName(config, change.name);
  const store = await createStore(config, systemClock, log);
  try {
    await store.waitUntilReady(config.database.startupTimeoutMs, new AbortController().signal);
    await store.schema.checkColumns(["outbox", "destinations"], change.isChange);
    const line = await work(new DestinationControl({ destinations: config.destinations, store, log }));
    flush();
    if (typeof line === "string") stdout.write(`${line}\n`);
  } finally {
    await store.close();
    flush();
  }
}

function checkName({ destinations }: Config, name: string): void {
  if (Object.hasOwn(destinations, name)) return;
  const names = Object.keys(destinations);
  const known = names.length === 0 ? "there are none" : `the destinations are ${names.join(", ")}`;
  const message = `there is no destination ${JSON.stringify(name)}: ${known}${didYouMean(name, names)}`;
  throw new ConfigError([{ path: "destinations", message }]);
}

const COLUMNS: Columns<DestinationOverview> = [
  ["name", ({ name }) => plainText(name, 40)],
  ["state", stateText],
  ["backlog", ({ backlog }) => String(backlog)],
  ["oldest", ({ oldestAgeMs }) => (oldestAgeMs === null ? "-" : ageOf(oldestAgeMs))],
  ["in flight", ({ inFlight }) => String(inFlight)],
  ["rate", ({ rate }) => (rate === null ? "-" : `${rate.taken} of ${rate.perSecond}/s`)],
  ["last success", ({ lastSuccessAt }) => lastSuccessAt?.toISOString() ?? "-"],
  ["last failure", ({ lastFailureAt }) => lastFailureAt?.toISOString() ?? "-"],
  ["last error", ({ lastError }) => plainText(lastError ?? "-", 60)],
];

function tableOf(destinations: readonly DestinationOverview[]): string {
  return destinations.length === 0 ? "no destinations are configured\n" : textTable(destinations, COLUMNS);
}

function stateText({ state, pause, breaker }: DestinationOverview): string {
  if (pause !== null) {
    const until = pause.until === null ? "" : ` until ${pause.until.toISOString()}`;
    return `paused since ${pause.since.toISOString()}${until} by ${plainText(pause.by, 40)}: ${plainText(pause.reason, 60)}`;
  }
  if (state === "open") return `open, next probe in ${ageOf(breaker?.nextProbeMs ?? 0)}`;
  return state;
}

/** In the largest unit of which there are at least two. */
function ageOf(ms: number): string {
  const units = [
    ["d", 86_400_000],
    ["h", 3_600_000],
    ["m", 60_000],
  ] as const;
  const [unit, length] = units.find(([, each]) => ms >= 2 * each) ?? ["s", 1000];
  return `${Math.ceil(ms / length)}${unit}`;
}
