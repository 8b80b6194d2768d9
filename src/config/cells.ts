import { isDeepStrictEqual } from "node:util";
import { ConfigError } from "../model/errors.ts";
import type { CellIdentity } from "../ports/store.ts";
import { DATABASES, schemaOf } from "./databases.ts";
import { addressOf } from "./derive.ts";
import { requireName } from "./kinds.ts";
import type { CaptureConfig, CellConfig, Config } from "./types.ts";

/**
 * The cells that a process serves.
 *
 * @param named `--cells`: names with commas between them; undefined for all
 * @returns in the order of the configuration; empty without cells
 * @throws ConfigError for a name that no cell has
 */
export function servedCells({ database: { cells } }: Config, named: string | undefined): readonly CellConfig[] {
  if (named === undefined) return cells;
  const names = named.split(",").map((name) => name.trim());
  const known = cells.map(({ name }) => name);
  for (const name of names) requireName("cell", name, known, "--cells", "database.cells has none");
  return cells.filter(({ name }) => names.includes(name));
}

/** The configuration of the roles that work in one cell: its database, and names of its own for what the capture keeps. */
export function cellConfig(config: Config, cell: CellConfig): Config {
  const { database, outbox } = config;
  return {
    ...config,
    database: { ...database, target: cell.target, cells: [] },
    outbox: { ...outbox, capture: captureOf(outbox.capture, cell) },
  };
}

/** The cell with the database of `database.url`, which has what the cells share; undefined if there is none. */
export function controlCell({ database: { cells, target } }: Config): CellConfig | undefined {
  return cells.find((cell) => isDeepStrictEqual(withSchema(cell.target), withSchema(target)));
}

function withSchema(target: CellConfig["target"]): object {
  return { ...target, currentSchema: schemaOf(target) };
}

/** What the configuration takes the database of `database.url` for. */
export function controlIdentity(config: Config): CellIdentity {
  const cell = controlCell(config);
  return cell === undefined
    ? { position: NO_CELL, name: "control", cells: config.database.cells.length }
    : identityOf(config, cell);
}

/** The position of the shared schema, if that is no cell. */
export const NO_CELL = 0;

/** Which cell the configuration takes the database of a cell for. @param cell one of `database.cells` */
export function identityOf({ database: { cells } }: Config, { name }: CellConfig): CellIdentity {
  return { position: cells.findIndex((each) => each.name === name) + 1, name, cells: cells.length };
}

/**
 * Refuses a list of cells that would take keys to other databases than before.
 *
 * @param stored the cell that the database is; undefined if it is none
 * @param own the cell that the configuration takes it for; undefined without cells
 * @throws ConfigError when they differ
 */
export function requireIdentity(stored: CellIdentity | undefined, own: CellIdentity | undefined): void {
  if (stored === undefined || isDeepStrictEqual(stored, own)) return;
  const inWords = ({ position, name, cells }: CellIdentity) =>
    position === NO_CELL ? `the schema that ${cells} cells share` : `cell ${position} of ${cells} (${name})`;
  const message =
    own === undefined
      ? `this database is ${inWords(stored)}, but the configuration has no cells: restore database.cells`
      : `this database is ${inWords(stored)}, but the configuration makes it ${inWords(own)}: restore the number, the order and the databases of the cells`;
  throw new ConfigError([{ path: "database.cells", message }]);
}

function captureOf(capture: CaptureConfig, { name, url, target }: CellConfig): CaptureConfig {
  const { longestName } = DATABASES[target.type];
  const own = (shared: string) => `${shared}_${name}`.slice(-longestName);
  const { host, port } = addressOf(target);
  const { connection } = capture;
  const elsewhere = { hostname: host, port, database: target.database ?? connection.username };
  return {
    ...capture,
    schema: (target.type === "postgresql" ? target.currentSchema : undefined) ?? capture.schema,
    slot: own(capture.slot),
    publication: own(capture.publication),
    identity: own(capture.identity),
    connection: url === undefined ? connection : { ...connection, ...elsewhere },
  };
}
