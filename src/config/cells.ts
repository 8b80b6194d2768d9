import { ConfigError } from "../model/errors.ts";
import { DATABASES } from "./databases.ts";
import { addressOf } from "./derive.ts";
import { didYouMean } from "./kinds.ts";
import type { CaptureConfig, CellConfig, Config, DestinationConfig } from "./types.ts";

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
  for (const name of names) {
    if (known.includes(name)) continue;
    const choice = known.length === 0 ? "database.cells has none" : `the cells are ${known.join(", ")}`;
    const message = `there is no cell ${JSON.stringify(name)}: ${choice}${didYouMean(name, known)}`;
    throw new ConfigError([{ path: "--cells", message }]);
  }
  return cells.filter(({ name }) => names.includes(name));
}

/**
 * The configuration of the roles that work in one cell: its database, its share of the rates that all replicas have
 * together, and names of its own for what the capture keeps.
 */
export function cellConfig(config: Config, cell: CellConfig): Config {
  const { database, outbox, destinations } = config;
  const shared = database.cells.length;
  const entries = Object.entries(destinations).map(([name, entry]) => [name, withShareOfRate(entry, shared)]);
  return {
    ...config,
    database: { ...database, target: cell.target, cells: [] },
    outbox: { ...outbox, capture: captureOf(outbox.capture, cell) },
    destinations: Object.fromEntries(entries),
  };
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

/** Cells know nothing of each other's deliveries: together they keep the rate. */
function withShareOfRate(entry: DestinationConfig, cells: number): DestinationConfig {
  const { rateLimit } = entry;
  if (rateLimit === undefined) return entry;
  const { perSecond, burst } = rateLimit;
  const share = burst === undefined ? {} : { burst: Math.max(1, Math.floor(burst / cells)) };
  return { ...entry, rateLimit: { perSecond: perSecond / cells, ...share } };
}
