import { readFileSync } from "node:fs";
import { errorText } from "../model/errors.ts";
import { CONFIG_FILE_VARIABLE, configVariables, type Environment } from "./environment.ts";
import { parseYaml, type YamlFile } from "./yamlFile.ts";

const DEFAULT_CONFIG_FILE = "/etc/svc/svc.yml";

/** Reads a file as UTF-8; throws what `fs.readFileSync` throws. */
export type ReadFile = (path: string) => string;
export const readFileFromDisk: ReadFile = (path) => readFileSync(path, "utf8");

type ConfigSource = "file" | "packaged" | "none";

export interface ChosenFile {
  readonly source: ConfigSource;
  /** Its path, or a description. */
  readonly name: string;
  readonly yaml: YamlFile;
}

/** The file cannot be read or parsed. */
export class ConfigFileError extends Error {
  override readonly name = "ConfigFileError";
  readonly file: string;

  constructor(file: string, message: string) {
    super(message);
    this.file = file;
  }
}

/**
 * Chooses and reads the configuration file: the one named on the command line, else by `SVC_CONFIG_FILE`, else
 * `/etc/svc/svc.yml` if it exists, else the packaged one if no `SVC_` variable is set, else none.
 *
 * @throws ConfigFileError for a named file that does not exist, and for any file that cannot be read or parsed
 */
export function chooseFile(named: string | undefined, env: Environment, readFile: ReadFile): ChosenFile {
  const variable = env[CONFIG_FILE_VARIABLE] || undefined;
  const explicit = named ?? variable;
  const name = explicit ?? DEFAULT_CONFIG_FILE;
  const text = read(name, explicit === undefined, named === undefined && variable !== undefined, readFile);
  if (text !== undefined) return { source: "file", name, yaml: parse(name, text) };
  if (configVariables(env).length > 0) {
    return { source: "none", name: "environment variables only", yaml: { root: new Map(), lines: new Map() } };
  }
  return { source: "packaged", name: "packaged default file", yaml: parse("packaged default file", PACKAGED_DEFAULT) };
}

function read(name: string, mayBeMissing: boolean, byVariable: boolean, readFile: ReadFile): string | undefined {
  try {
    return readFile(name);
  } catch (error) {
    const code = (error as { code?: unknown }).code;
    const missing = code === "ENOENT" || code === "ENOTDIR";
    if (missing && mayBeMissing) return undefined;
    const namedBy = byVariable ? `, which ${CONFIG_FILE_VARIABLE} names` : "";
    const reason = missing ? "there is no such file" : errorText(error);
    throw new ConfigFileError(name, `cannot read the configuration file${namedBy}: ${reason}`);
  }
}

function parse(name: string, text: string): YamlFile {
  try {
    return parseYaml(text);
  } catch (error) {
    throw new ConfigFileError(name, errorText(error));
  }
}

/**
 * The packaged default file, for a process without a file and without `SVC_` variables (spec, "Configuration
 * resource"). A constant, so that it is wherever the program is.
 */
export const PACKAGED_DEFAULT = `# Packaged default of svc: used when no configuration file exists and no SVC_ variable is set.
server:
  httpPort: 8080
database:
  type: postgresql
  url: jdbc:postgresql://localhost:5432/svc
  username: svc
  password: svc
`;
