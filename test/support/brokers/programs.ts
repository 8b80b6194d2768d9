import { spawnSync } from "node:child_process";
import { accessSync, constants, existsSync, readdirSync, readFileSync, realpathSync } from "node:fs";
import { homedir } from "node:os";
import path from "node:path";
import type { BrokerKind } from "./types.ts";

/** Finds the server programs of this machine. `test/services/install.sh` puts them there. */

/** The folder of `test/services/install.sh` for what is no package of the operating system. */
export function serversFolder(): string {
  return process.env.SVC_TEST_SERVERS || path.join(homedir(), ".cache", "svc-test-servers");
}

/** The programs of a RabbitMQ server. */
export interface RabbitmqPrograms {
  readonly server: string;
  readonly control: string;
  /** Erlang's client of a running node, if it is installed. It starts no Erlang of its own, which costs `control` a hundred times the processor time. */
  readonly call: string | undefined;
  /** The name server of Erlang nodes. */
  readonly epmd: string;
}

export function findRabbitmq(): RabbitmqPrograms | undefined {
  const folders = FOLDERS.rabbitmq();
  const server = findPrograms("rabbitmq-server", folders).find((file) => lackOf("rabbitmq", file) === undefined);
  const control = findProgram("rabbitmqctl", folders);
  const epmd = findProgram("epmd", searchPath());
  const call = findProgram("erl_call", searchPath());
  return server && control && epmd ? { server, control, call, epmd } : undefined;
}

export function findNats(): string | undefined {
  return findPrograms("nats-server", FOLDERS.nats()).find((file) => lackOf("nats", file) === undefined);
}

/** A Java program and the jars of a Kafka broker. */
export interface KafkaPrograms {
  readonly java: string;
  readonly classPath: string;
  /** Java's archive of the classes of a broker, if it was made: loading them is most of the work of a start. */
  readonly classes: string | undefined;
}

export function findKafka(): KafkaPrograms | undefined {
  const java = findPrograms("java", FOLDERS.kafka()).find((file) => lackOf("kafka", file) === undefined);
  const versions = existsSync(serversFolder())
    ? readdirSync(serversFolder()).filter((name) => /^kafka-\d[\d.]*$/.test(name))
    : [];
  const newest = versions.sort((a, b) => a.localeCompare(b, "en", { numeric: true })).at(-1);
  if (java === undefined || newest === undefined) return undefined;
  const folder = path.join(serversFolder(), newest);
  const classes = path.join(folder, "classes.jsa");
  return { java, classPath: path.join(folder, "*"), classes: existsSync(classes) ? classes : undefined };
}

/** The folders of the program that decides whether there is a server of a kind. */
const FOLDERS: Readonly<Record<BrokerKind, () => readonly string[]>> = {
  // Debian's programs on the PATH change the user and the environment; those of its own folder do not.
  rabbitmq: () => ["/usr/lib/rabbitmq/bin", ...searchPath(), "/opt/homebrew/sbin", "/usr/local/sbin"],
  nats: () => {
    const goPath = process.env.GOPATH || path.join(homedir(), "go");
    const goFolders = [process.env.GOBIN ?? "", path.join(goPath, "bin")].filter((folder) => folder !== "");
    return [path.join(serversFolder(), "bin"), ...goFolders, ...searchPath()];
  },
  kafka: () => {
    const javaHome = process.env.JAVA_HOME;
    return [...(javaHome ? [path.join(javaHome, "bin")] : []), ...searchPath()];
  },
};

/** The program of a kind, its oldest version that has what the tests need, and the function that reads a program's version; undefined if it reports none. */
const VERSIONS: Readonly<
  Record<BrokerKind, { program: string; oldest: string; version: (file: string) => string | undefined }>
> = {
  // Asking it starts an Erlang, which takes a second; its folder has the number.
  rabbitmq: {
    program: "rabbitmq-server",
    oldest: "3.10",
    version: (file) => /rabbitmq(?:_server-|\/)(\d+\.\d+)/.exec(realpathSync(file))?.[1],
  },
  nats: { program: "nats-server", oldest: "2.9", version: (file) => outputOf(file, "-v") },
  kafka: { program: "java", oldest: "17", version: javaVersion },
};

/** Why the programs that are installed for a kind of broker do not serve; undefined if none is installed, or one serves. */
export function whyUnusable(kind: BrokerKind): string | undefined {
  if (hasProgram(kind)) return undefined;
  return findPrograms(VERSIONS[kind].program, FOLDERS[kind]()).flatMap((file) => lackOf(kind, file) ?? [])[0];
}

function lackOf(kind: BrokerKind, file: string): string | undefined {
  const { oldest, version } = VERSIONS[kind];
  const [found] = /\d+(?:\.\d+)?/.exec(version(file) ?? "") ?? [];
  const isOlder = found !== undefined && found.localeCompare(oldest, "en", { numeric: true }) < 0;
  return isOlder ? `${file} is ${found}, older than ${oldest}` : undefined;
}

/** Read from its folder: asking Java starts one. */
function javaVersion(file: string): string | undefined {
  const release = path.join(path.dirname(realpathSync(file)), "..", "release");
  const told = existsSync(release) ? /^JAVA_VERSION="([^"]+)/m.exec(readFileSync(release, "utf8"))?.[1] : undefined;
  return told ?? /version "([^"]+)/.exec(outputOf(file, "-version"))?.[1];
}

/** What a program prints. */
function outputOf(file: string, argument: string): string {
  const { stdout, stderr } = spawnSync(file, [argument], { encoding: "utf8", timeout: 30_000 });
  return `${stdout ?? ""}${stderr ?? ""}`;
}

export function findPgbouncer(): string | undefined {
  // Debian's folder is on the PATH of root only.
  return findProgram("pgbouncer", [...searchPath(), "/usr/sbin", "/opt/homebrew/bin"]);
}

/** A C compiler. */
export function findCompiler(): string | undefined {
  return findProgram("cc", searchPath());
}

/** Programs that render and check what `deploy` and `helm` hold, the OpenAPI document, and the console; that run clients. */
export const DEPLOY_TOOLS = {
  chromium: () => findProgram("chromium", searchPath()),
  helm: () => findProgram("helm", [path.join(serversFolder(), "bin"), ...searchPath()]),
  /** The Python of an environment that has `kubernetes_validate`. */
  "kubernetes-validate": () => findProgram("python3", [path.join(serversFolder(), "kubernetes-validate", "bin")]),
  /** The module of Redocly's linter of OpenAPI documents. */
  "openapi-linter": () => {
    const module = path.join(serversFolder(), "openapi-linter/node_modules/@redocly/openapi-core/lib/index.js");
    return existsSync(module) ? module : undefined;
  },
  schemathesis: () => findProgram("schemathesis", [path.join(serversFolder(), "schemathesis", "bin")]),
  prometheus: () => findProgram("prometheus", searchPath()),
  promtool: () => findProgram("promtool", searchPath()),
  /** The Python of an environment that has the database drivers. */
  "client-python": () => findProgram("python3", [path.join(serversFolder(), "clients/python/bin")]),
  /** The folder of Go's modules. */
  "client-go": () => installed("clients/go"),
  /** Maven's repository. */
  "client-java": () => installed("clients/java"),
} as const satisfies Readonly<Record<string, () => string | undefined>>;

export type DeployTool = keyof typeof DEPLOY_TOOLS;

function installed(folder: string): string | undefined {
  const found = path.join(serversFolder(), folder);
  return existsSync(path.join(found, "installed")) ? found : undefined;
}

/** Whether the program of a broker is on this machine. */
export function hasProgram(kind: BrokerKind): boolean {
  const find = { rabbitmq: findRabbitmq, nats: findNats, kafka: findKafka };
  return find[kind]() !== undefined;
}

function searchPath(): string[] {
  return (process.env.PATH ?? "").split(path.delimiter).filter((folder) => folder !== "");
}

function findProgram(name: string, folders: readonly string[]): string | undefined {
  return findPrograms(name, folders)[0];
}

function findPrograms(name: string, folders: readonly string[]): readonly string[] {
  return folders.map((folder) => path.join(folder, name)).filter(isExecutable);
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
