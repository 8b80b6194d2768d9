import { accessSync, constants, existsSync, readdirSync } from "node:fs";
import { homedir } from "node:os";
import path from "node:path";
import type { BrokerKind } from "./types.ts";

/** Finds the server programs of this machine. `test/services/install.sh` puts them there. */

/** Where `test/services/install.sh` puts what is no package of the operating system. */
export function serversFolder(): string {
  return process.env.SVC_TEST_SERVERS || path.join(homedir(), ".cache", "svc-test-servers");
}

/** The programs of a RabbitMQ server. */
export interface RabbitmqPrograms {
  readonly server: string;
  readonly control: string;
  /** The name server of Erlang nodes. */
  readonly epmd: string;
}

export function findRabbitmq(): RabbitmqPrograms | undefined {
  // Debian's programs on the PATH change the user and the environment; those of its own folder do not.
  const folders = ["/usr/lib/rabbitmq/bin", ...searchPath(), "/opt/homebrew/sbin", "/usr/local/sbin"];
  const server = findProgram("rabbitmq-server", folders);
  const control = findProgram("rabbitmqctl", folders);
  const epmd = findProgram("epmd", searchPath());
  return server && control && epmd ? { server, control, epmd } : undefined;
}

export function findNats(): string | undefined {
  const goPath = process.env.GOPATH || path.join(homedir(), "go");
  const goFolders = [process.env.GOBIN ?? "", path.join(goPath, "bin")].filter((folder) => folder !== "");
  return findProgram("nats-server", [path.join(serversFolder(), "bin"), ...goFolders, ...searchPath()]);
}

/** A Java program and the jars of a Kafka broker. */
export interface KafkaPrograms {
  readonly java: string;
  readonly classPath: string;
}

export function findKafka(): KafkaPrograms | undefined {
  const javaHome = process.env.JAVA_HOME;
  const java = findProgram("java", [...(javaHome ? [path.join(javaHome, "bin")] : []), ...searchPath()]);
  const versions = existsSync(serversFolder())
    ? readdirSync(serversFolder()).filter((name) => /^kafka-\d[\d.]*$/.test(name))
    : [];
  const newest = versions.sort((a, b) => a.localeCompare(b, "en", { numeric: true })).at(-1);
  if (java === undefined || newest === undefined) return undefined;
  return { java, classPath: path.join(serversFolder(), newest, "*") };
}

export function findPgbouncer(): string | undefined {
  // Debian's folder is on the PATH of root only.
  return findProgram("pgbouncer", [...searchPath(), "/usr/sbin", "/opt/homebrew/bin"]);
}

/** Programs that render and check what `deploy` and `helm` hold. */
export const DEPLOY_TOOLS = {
  helm: () => findProgram("helm", [path.join(serversFolder(), "bin"), ...searchPath()]),
  /** The Python of an environment that has `kubernetes_validate`. */
  "kubernetes-validate": () => findProgram("python3", [path.join(serversFolder(), "kubernetes-validate", "bin")]),
  /** The module of Redocly's linter of OpenAPI documents. */
  "openapi-linter": () => {
    const module = path.join(serversFolder(), "openapi-linter/node_modules/@redocly/openapi-core/lib/index.js");
    return existsSync(module) ? module : undefined;
  },
  schemathesis: () => findProgram("schemathesis", [path.join(serversFolder(), "schemathesis", "bin")]),
  promtool: () => findProgram("promtool", searchPath()),
} as const satisfies Readonly<Record<string, () => string | undefined>>;

export type DeployTool = keyof typeof DEPLOY_TOOLS;

/** Whether the program of a broker is on this machine. */
export function hasProgram(kind: BrokerKind): boolean {
  const find = { rabbitmq: findRabbitmq, nats: findNats, kafka: findKafka };
  return find[kind]() !== undefined;
}

function searchPath(): string[] {
  return (process.env.PATH ?? "").split(path.delimiter).filter((folder) => folder !== "");
}

function findProgram(name: string, folders: readonly string[]): string | undefined {
  return folders.map((folder) => path.join(folder, name)).find(isExecutable);
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
