import { ConfigError, type ConfigProblem } from "../model/errors.ts";
import { checkDestinations, checkSources } from "./checks/entries.ts";
import { Rules } from "./checks/rules.ts";
import { checkDatabase, checkSwitches, readJdbcUrl } from "./checks/sections.ts";
import { schemaOf } from "./databases.ts";
import { deepFreeze, derive, materialise } from "./derive.ts";
import { configVariables, type Environment, overlayEnvironment } from "./environment.ts";
import { type ChosenFile, ConfigFileError, chooseFile, type ReadFile, readFileFromDisk } from "./file.ts";
import { formatKeyPath, type KeyPath, type Origin, type Origins, originAt } from "./keyPath.ts";
import { found } from "./mask.ts";
import { databaseSchema } from "./schema/database.ts";
import { rootSchema } from "./schema/index.ts";
import { type Finding, shape, toProblems } from "./shape.ts";
import type { Config, DeclaredConfig } from "./types.ts";
import { syntaxError, validate } from "./validate.ts";
import type { Raw } from "./yamlFile.ts";

export interface LoadOptions {
  /** The process's variables; `process.env` fits. */
  readonly env: Environment;
  /** Reads the configuration file and secret files. Default: from the disk. */
  readonly readFile?: ReadFile | undefined;
  /** The file named on the command line (`--config`); it wins over `SVC_CONFIG_FILE`. */
  readonly file?: string | undefined;
  /** Make every warning a problem. */
  readonly strict?: boolean | undefined;
}

export interface LoadedConfig {
  /** Checked, complete, deeply frozen. */
  readonly config: Config;
  /** Unknown keys and variables, and settings that are probably mistakes. To be logged. */
  readonly warnings: readonly ConfigProblem[];
  /** How each key got its value, by key path; any other key has its default. */
  readonly origins: Origins;
  /** The file that was read, or a description. */
  readonly source: string;
}

export interface Inspection {
  readonly loaded: LoadedConfig | undefined;
  readonly problems: readonly ConfigProblem[];
  readonly warnings: readonly ConfigProblem[];
  readonly source: string;
}

/**
 * Loads the configuration: `SVC_` variables over the YAML file over the defaults (spec, "Configuration resource").
 *
 * @throws ConfigError with every problem
 */
export function loadConfig(options: LoadOptions): LoadedConfig {
  const { loaded, problems } = inspectConfig(options);
  if (loaded === undefined) throw new ConfigError(problems);
  return loaded;
}

/** {@link loadConfig} that returns problems and warnings instead of throwing. */
export function inspectConfig(options: LoadOptions): Inspection {
  const readFile = options.readFile ?? readFileFromDisk;
  try {
    return inspectFile(chooseFile(options.file, options.env, readFile), options, readFile);
  } catch (error) {
    if (!(error instanceof ConfigFileError)) throw error;
    const problem = { path: error.file, message: error.message };
    return { loaded: undefined, problems: [problem], warnings: [], source: error.file };
  }
}

function inspectFile(file: ChosenFile, options: LoadOptions, readFile: ReadFile): Inspection {
  const { root, lines } = file.yaml;
  const overlay = overlayEnvironment(root, configVariables(options.env), rootSchema);
  const origins = new Map<string, Origin>([...fileOrigins(file, lines), ...overlay.origins]);
  inheritOrigins(root, [], origins);
  const shaped = shape(root, rootSchema, {
    lookup: (name) => options.env[name],
    readFile,
    fromEnvironment: (path) => originAt(origins, path)?.kind === "environment",
  });

  for (const path of shaped.textKeys) {
    const origin = originAt(origins, path);
    if (origin !== undefined) origins.set(formatKeyPath(path), origin);
  }

  const findings = [...shaped.problems, ...listCells(shaped.data.database, origins)];
  const broken = new Set(findings.map((finding) => formatKeyPath(finding.path)));
  // A key or block that has its problem already needs no second one.
  const isNews = ({ path }: Finding) => !path.some((_, index) => broken.has(formatKeyPath(path.slice(0, index + 1))));
  findings.push(...validate(shaped.data, shaped.unknownKeys).filter(isNews));
  const declared = materialise(rootSchema, shaped.data, shaped.secretFiles) as DeclaredConfig;
  const rules = new Rules(findings.map((finding) => finding.path));
  checkDatabase(declared, rules);
  checkSwitches(declared, rules);
  checkDestinations(declared, keysOf(root.get("destinations")), rules);
  checkSources(declared, rules);

  const report = (list: readonly Finding[]) => toProblems(list, origins);
  const warnings = [...overlay.unknown, ...report([...shaped.warnings, ...rules.warnings])];
  const problems = [...overlay.problems, ...report([...findings, ...rules.errors])];
  if (options.strict === true) problems.push(...warnings.splice(0));
  const parsed = problems.length === 0 ? readJdbcUrl(declared.database) : "";
  if (typeof parsed === "string") return { loaded: undefined, problems, warnings, source: file.name };

  const { config, derivedFrom } = derive(declared, parsed.target);
  const derivedOrigins = [...derivedFrom].map(([key, from]): [string, Origin] => [key, { kind: "derived", from }]);
  const loaded: LoadedConfig = {
    config: deepFreeze(config),
    warnings,
    origins: new Map([...origins, ...derivedOrigins]),
    source: file.name,
  };
  return { loaded, problems: [], warnings, source: file.name };
}

function fileOrigins(file: ChosenFile, lines: ReadonlyMap<string, number>): [string, Origin][] {
  return [...lines].map(([key, line]) => [
    key,
    file.source === "packaged" ? { kind: "packaged" } : { kind: "file", file: file.name, line },
  ]);
}

/** Gives values behind a YAML alias or merge, which have no line, the origin of the block around them. */
function inheritOrigins(raw: Raw, path: KeyPath, origins: Map<string, Origin>): void {
  if (typeof raw !== "object" || raw === null) return;
  for (const [step, value] of raw.entries()) {
    const own = [...path, step];
    const origin = originAt(origins, own);
    if (origin !== undefined) origins.set(formatKeyPath(own), origin);
    inheritOrigins(value, own, origins);
  }
}

function keysOf(raw: unknown): string[] {
  return raw instanceof Map ? [...raw.keys()] : [];
}

/**
 * Lists the cells of a count: one in each of the schemas `<schema>_0`, `<schema>_1` and so on of `database.url`.
 *
 * @param database the section, not validated yet; a count in it becomes a list
 * @param origins get those of the list's values
 * @returns what is wrong with the count
 */
function listCells(database: unknown, origins: Map<string, Origin>): Finding[] {
  const section = (database ?? {}) as { cells?: unknown; readonly type?: unknown; readonly url?: unknown };
  const { cells: count, type, url } = section;
  if (count === undefined || Array.isArray(count)) return [];
  section.cells = [];
  const path = ["database", "cells"];
  const most = databaseSchema.properties.cells.orCount;
  if (typeof count !== "number" || count < 1 || count > most) {
    const message = `expected a list, or a whole number from 1 to ${most}, found ${found({}, "cells", count)}`;
    return [{ path, message }];
  }
  if (type === "sqlserver")
    return [{ path, message: "cannot be a number on sqlserver: list the cells, each with a url" }];
  const parsed = readJdbcUrl({ type: "postgresql", url: String(url) });
  // The URL has its own problem.
  if (typeof parsed === "string" || parsed.target.type !== "postgresql") return [];
  const schema = schemaOf(parsed.target);
  const names = Array.from({ length: count }, (_, n) => `${schema}_${n}`);
  const wrong = syntaxError("captureName", names.at(-1) ?? "");
  if (wrong !== undefined) {
    const message = `cannot be a number with the schema ${schema}, which gives the cells their names (${wrong}): list the cells`;
    return [{ path, message }];
  }
  section.cells = names.map((name) => ({ name, schema: name }));
  const origin = originAt(origins, path);
  for (const key of ["name", "schema"])
    for (const n of names.keys()) if (origin !== undefined) origins.set(formatKeyPath([...path, n, key]), origin);
  return [];
}
