import { randomUUID } from "node:crypto";
import type { Command } from "commander";
import type { CellOverview } from "../core/cells/cellMap.ts";
import type { MovedBucket } from "../core/cells/mover.ts";
import { keptBy, placeOf, twinsOf, twinsText } from "../core/cells/places.ts";
import { ownersOf, takenAlong, withEpochs } from "../core/cells/planning.ts";
import { equalShares, type PlannedMove } from "../core/cells/shares.ts";
import { BUCKETS, bucketOf } from "../model/cells.ts";
import { ConfigError, withoutTable } from "../model/errors.ts";
import { groupBy } from "../model/groups.ts";
import type { ClaimToken } from "../model/rows.ts";
import { parseDuration } from "../model/text.ts";
import type { ProcessAlive } from "../ports/operationsStore.ts";
import { type CellsTools, onCells } from "./cellStores.ts";
import {
  type Columns,
  type CommandIo,
  FILE_OPTION,
  operator,
  optionParser,
  repeatedOption,
  textTable,
  usageError,
} from "./io.ts";

interface MoveOptions {
  readonly config?: string;
  readonly dryRun?: boolean;
  readonly wait?: number;
  readonly to?: string;
  readonly bucket?: readonly number[];
  readonly key?: string;
  readonly without?: readonly string[];
}

/**
 * Adds `cells list`, `of`, `rebalance`, `drain` and `move`.
 *
 * @param program the command to add them to; a `--config` option of its own counts too
 */
export function addCellCommands(program: Command, io: CommandIo): void {
  const cells = program
    .command("cells")
    .description("where the buckets of received messages are, and moving them between cells (database.cells)")
    .addHelpText("after", EXAMPLES);

  cells
    .command("list")
    .description("show the cells, how many buckets each has, and which are moving")
    .option(...FILE_OPTION)
    .option("--json", "one JSON object, for programs")
    .action((_options, command: Command) => {
      const { config, json = false } = command.optsWithGlobals<{ readonly config?: string; readonly json?: boolean }>();
      return onCells(io, config, async ({ map }) => listed(map.cells(), json));
    });

  cells
    .command("of <key>")
    .description(
      "show the bucket of a key (an aggregate id, or the idempotency key of a message without one), and its cell",
    )
    .option(...FILE_OPTION)
    .action((key: string, _options, command: Command) => {
      const { config } = command.optsWithGlobals<{ readonly config?: string }>();
      if (key === "") return usageError(command, "the key is empty: no message has that key");
      return onCells(io, config, async ({ map }) => {
        const place = map.cellOf(bucketOf(key));
        return `bucket ${bucketOf(key)}: ${"cell" in place ? place.cell : place.reason}\n`;
      });
    });

  moving(
    cells
      .command("rebalance")
      .description("give each cell an equal share of the buckets, with as few moves as possible"),
  ).action((_options, command: Command) => {
    const options = command.optsWithGlobals<MoveOptions>();
    return onCells(io, options.config, async (tools) => {
      const plan = equalShares(
        ownersOf(requireAll(tools)).owners,
        tools.cells.map(({ name }) => name),
      );
      return await moved(tools, plan, "rebalance", options, io);
    });
  });

  moving(
    cells.command("drain <cell>").description("move all buckets of a cell to the others, before it is removed"),
  ).action((cell: string, _options, command: Command) => {
    const options = command.optsWithGlobals<MoveOptions>();
    return onCells(io, options.config, async (tools) => {
      requireCell(tools, cell, "drain");
      const others = tools.cells.map(({ name }) => name).filter((name) => name !== cell);
      if (others.length === 0) return usageError(command, "it is the only cell: nothing can take its buckets");
      const { owners } = ownersOf(requireAll(tools));
      const plan = equalShares(owners, others).filter(({ from }) => from === cell || from === undefined);
      const text = await moved(tools, plan, `drain ${cell}`, options, io);
      return options.dryRun ? text : text + (await leftIn(tools, cell));
    });
  });

  moving(cells.command("move").description("move some buckets to a cell"))
    .requiredOption("--to <cell>", "where they go")
    .option("--bucket <numbers>", "such as 7 or 7,20-29", optionParser(parseBuckets))
    .option("--key <key>", "the bucket of this key")
    .action((_options, command: Command) => {
      const options = command.optsWithGlobals<MoveOptions>();
      const { to = "", bucket, key } = options;
      if ((bucket === undefined) === (key === undefined))
        return usageError(command, "give --bucket or --key, one of both");
      if (key === "") return usageError(command, "--key is empty: no message has that key");
      const wanted = bucket ?? [bucketOf(key ?? "")];
      return onCells(io, options.config, async (tools) => {
        requireCell(tools, to, "--to");
        const { owners, moving: busy } = ownersOf(requireAll(tools));
        const cells = tools.map.cells();
        const stuck = wanted.find((each) => busy.has(each) && keptBy(each, cells) !== to);
        if (stuck !== undefined) throw new Error(`${busy.get(stuck)}: try again when that has ended`);
        const plan = wanted.flatMap((each) =>
          owners.get(each) === to ? [] : [{ bucket: each, from: owners.get(each), to }],
        );
        return await moved(tools, plan, `move to ${to}`, options, io);
      });
    });
}

const moving = (command: Command): Command =>
  command
    .option(...FILE_OPTION)
    .option("--dry-run", "show what would be moved")
    .option(
      "--wait <duration>",
      "time for which a bucket is closed until its rows are delivered, up to four times that while enough of them leave (default: 5s)",
      optionParser(parseWait),
    )
    .option(
      "--without <cell>",
      "a cell that was removed with its buckets: opens them anew, without the messages that it had stored (repeatable)",
      repeatedOption((name) => name),
    );

const EXAMPLES = `
While a bucket moves, senders of its keys wait; after about ten seconds they get a 500. A bucket stays where it is while
a row of it waits for longer than --wait allows: for its retry, an operator, a pull client, or its time.

Ctrl-C ends a move: buckets that are closed just then are opened again. After a move that died the next one goes on.

Exit codes: 0 done, 2 configuration or usage error, 1 anything else, also where some buckets were not moved.

Examples:
  svc cells list
  svc cells of order-17
  svc cells rebalance --dry-run
  svc cells drain cell-2
  svc cells move --bucket 7,20-29 --to cell-3`;

/** @throws Error for text that is not a list of buckets */
function parseBuckets(text: string): readonly number[] {
  const buckets = text.split(",").flatMap((part) => {
    const [, from = "", to = from] = /^\s*(\d{1,4})(?:-(\d{1,4}))?\s*$/.exec(part) ?? [];
    const [first, last] = [Number(from), Number(to)];
    if (from === "" || first > last || last >= BUCKETS)
      throw new Error(`numbers from 0 to ${BUCKETS - 1} are expected, such as 7 or 7,20-29`);
    return Array.from({ length: last - first + 1 }, (_, n) => first + n);
  });
  return [...new Set(buckets)];
}

/** @throws Error for text that is not a duration, or one above 60 s */
function parseWait(text: string): number {
  const ms = parseDuration(text);
  if (ms === undefined || ms > LONGEST_WAIT_MS)
    throw new Error("a time of at most 60s is expected, such as 500ms or 5s");
  return ms;
}

const LONGEST_WAIT_MS = 60_000;

function requireCell({ cells }: CellsTools, name: string, path: string): void {
  const names = cells.map((cell) => cell.name);
  if (names.includes(name)) return;
  throw new ConfigError([
    { path, message: `there is no cell ${JSON.stringify(name)}: the cells are ${names.join(", ")}` },
  ]);
}

/**
 * Which cell owns a bucket is known only when every cell has answered.
 *
 * @throws Error that names the cell that has not, or two that share a database
 */
function requireAll({ map }: CellsTools): readonly CellOverview[] {
  const cells = map.cells();
  const away = cells.find(({ trouble }) => trouble !== undefined);
  if (away !== undefined) throw new Error(`the cell ${away.name} is away (${away.trouble}): nothing is moved`);
  const twins = twinsOf(cells);
  if (twins !== undefined) throw new Error(`${twinsText(twins)}: nothing is moved. ${TWINS_REMEDY}`);
  return cells;
}

const TWINS_REMEDY = "Correct the url, or empty outbox_bucket in the copy";

async function moved(
  tools: CellsTools,
  plan: readonly PlannedMove[],
  action: string,
  { dryRun = false, wait, without = [] }: MoveOptions,
  io: CommandIo,
): Promise<string> {
  const { map, mover, audit, signal } = tools;
  if (plan.length === 0) return "no bucket has to be moved\n";
  for (const [cell, buckets] of takenAlong(plan, map.cells())) {
    if (cell === undefined || without.includes(cell)) continue;
    throw new Error(
      `${bucketsText(buckets.length, buckets)} left for the cell ${cell}, which is not among the cells here: nothing is moved. Add it to database.cells; if it is gone for good, --without ${cell} opens them anew, and repetitions of what it had stored are delivered again`,
    );
  }
  const lines = [...groupBy(plan, ({ from, to }) => `from ${from ?? "no cell"} to ${to}`)].map(
    ([way, buckets]) => `${bucketsText(buckets.length)} ${way}\n`,
  );
  if (dryRun) return `would move:\n${lines.join("")}`;
  await requireCellsEverywhere(tools, plan);
  const results = await mover({
    waitMs: wait,
    newToken: () => randomUUID() as ClaimToken,
    onProgress: ({ moved: done, of, copied }) => {
      if (io.stderr.isTTY === true) io.stderr.write(`${done} of ${of} moved, ${copied} finished rows copied\n`);
    },
  }).move(withEpochs(plan, map.cells()), signal);
  const of = (outcome: MovedBucket["outcome"]) => results.filter((each) => each.outcome === outcome);
  const detail = `${lines.join("").trim().replaceAll("\n", ", ")}; moved ${of("moved").length}, held ${of("held").length}, failed ${of("failed").length}`;
  await audit.add({ actor: operator(), action: "cells", target: action, detail });
  if (of("moved").length < results.length) io.setExitCode(1);
  const reasons = groupBy([...of("held"), ...of("failed")], ({ outcome, from, reason }) =>
    outcome === "held" ? `stay in ${from}: ${reason}` : `failed: ${reason}`,
  );
  const kept = [...reasons].map(([reason, each]) => `${bucketsText(each.length, each)} ${reason}\n`);
  const text = `${bucketsText(of("moved").length)} moved\n${kept.join("")}`;
  // A signal's handler ends the process with 0 unless the work fails.
  if (signal.aborted && of("moved").length < results.length) throw new Error(text.trimEnd());
  return text;
}

/**
 * A process without cells would go on storing messages of buckets that have left its database: they would overtake
 * others, and be known twice. One that does not know the new cell would refuse the messages of its buckets.
 *
 * @throws Error that names such processes
 */
async function requireCellsEverywhere({ cells, map }: CellsTools, plan: readonly PlannedMove[]): Promise<void> {
  const away = map.cells().flatMap(({ name, trouble }) => (trouble === undefined ? [] : [name]));
  // The mover tells of a cell that is away.
  const among = (names: readonly (string | undefined)[]) =>
    cells.filter(({ name }) => names.includes(name) && !away.includes(name));
  const targets = new Map<string, ReadonlySet<string>>();
  for (const cell of among(plan.map(({ to }) => to)))
    targets.set(cell.name, new Set((await receiving(cell)).map(({ name }) => name)));
  for (const source of among(plan.map(({ from }) => from))) {
    for (const { name, knowsCells } of await receiving(source)) {
      const unknown = [...targets].find(([, names]) => !names.has(name))?.[0];
      if (knowsCells && unknown === undefined) continue;
      const what = knowsCells ? `without the cell ${unknown}` : "without knowing of cells";
      throw new Error(
        `${name} stores received messages in the cell ${source.name} ${what}: nothing is moved. Restart it with every cell in database.cells; one that was killed is forgotten after a minute`,
      );
    }
  }
}

/** The processes alive that store received messages in a cell. */
async function receiving({ store }: CellsTools["cells"][number]): Promise<readonly ProcessAlive[]> {
  const processes = (await store.operations.processes().catch(withoutTable)) ?? [];
  return processes.filter(({ roles }) => roles.includes("ingest"));
}

function bucketsText(count: number, named: readonly { readonly bucket: number }[] = []): string {
  const numbers = named.slice(0, MOST_NAMED).map(({ bucket }) => bucket);
  const list = numbers.length === 0 ? "" : ` (${numbers.join(", ")}${named.length > MOST_NAMED ? ", …" : ""})`;
  return `${count === 1 ? "1 bucket" : `${count} buckets`}${list}`;
}

const MOST_NAMED = 8;

function listed(cells: readonly CellOverview[], json: boolean): string {
  const { owners, moving: busy } = ownersOf(cells);
  const count = (name: string) => [...owners.values()].filter((owner) => owner === name).length;
  const lost = [...owners].flatMap(([bucket, owner]) => (owner === undefined ? [bucket] : []));
  const unplaced = [...busy.keys(), ...lost]
    .sort((a, b) => a - b)
    .map((bucket) => {
      const place = placeOf(bucket, cells);
      return { bucket, reason: "reason" in place ? place.reason : "" };
    });
  const rows = cells.map(({ name, trouble }) => ({ name, buckets: count(name), trouble: trouble ?? null }));
  if (json) return `${JSON.stringify({ cells: rows, unplaced }, null, 2)}\n`;
  const away = rows.flatMap(({ name, trouble }) => (trouble === null ? [] : [`${name} is away: ${trouble}\n`]));
  const notes = unplaced.slice(0, MOST_NAMED).map(({ reason }) => `${reason}\n`);
  const more = unplaced.length > MOST_NAMED ? `and ${unplaced.length - MOST_NAMED} more: --json lists them\n` : "";
  return `${textTable(rows, COLUMNS)}${away.join("")}${notes.join("")}${more}`;
}

const COLUMNS: Columns<{ readonly name: string; readonly buckets: number; readonly trouble: string | null }> = [
  ["cell", ({ name }) => name],
  ["buckets", ({ buckets }) => String(buckets)],
  ["state", ({ trouble }) => (trouble === null ? "answers" : "away")],
];

/** Whether a cell may be removed from the configuration. */
async function leftIn({ map, cells, waitingIn }: CellsTools, name: string): Promise<string> {
  await map.refresh();
  const { owners, moving: busy } = ownersOf(map.cells());
  const own = [...owners.values()].filter((owner) => owner === name).length;
  if (own + busy.size > 0) return `${name} is still needed: run this again when nothing holds its buckets\n`;
  const cell = cells.find((each) => each.name === name);
  const waiting = cell === undefined ? [] : await waitingIn(cell);
  return waiting.length === 0
    ? `${name} has no bucket, and nothing waits in it: stop what inserts outbox rows there, and remove it from database.cells\n`
    : `${name} has no bucket. Keep it until its rows are delivered: ${waiting.join(", ")}\n`;
}
