import { once } from "node:events";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { text } from "node:stream/consumers";
import { inspectConfig } from "../config/load.ts";
import type { Config } from "../config/types.ts";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../dev/embeddedPostgres.ts";
import { escapeControls } from "../model/text.ts";
import type { StartProcess } from "../setup/process.ts";
import { folderWith } from "./io.ts";
import { prepare, serve } from "./run.ts";

interface DevArguments {
  readonly start: StartProcess;
  readonly env: NodeJS.ProcessEnv;
  /** `--config`; created when missing. Default: `svc.yml`. */
  readonly file: string | undefined;
  /** The working folder. */
  readonly directory: string;
  readonly print: (line: string) => unknown;
}

/**
 * `svc dev`: every enabled role in one process over an embedded PostgreSQL in `.svc/`, with a receiver that prints
 * deliveries. It listens on 127.0.0.1 only. A signal stops all of it; the data stays for the next start.
 *
 * @throws the error of the part that failed to start; the other parts are stopped again
 */
export async function dev({ start, env, file = "svc.yml", directory, print }: DevArguments): Promise<void> {
  const configFile = path.resolve(directory, file);
  const made = !existsSync(configFile);
  if (made) writeFileSync(configFile, sampleConfig(path.dirname(configFile)));
  const home = path.resolve(directory, ".svc");
  mkdirSync(home, { recursive: true });

  print(made ? `made the sample configuration ${file}` : `using the configuration ${file}`);
  print("starting PostgreSQL in .svc/");
  const database = await startEmbeddedPostgres({ dataDirectory: path.join(home, "postgres") });
  const ends: (() => Promise<void>)[] = [() => database.stop()];
  const atEnd = async (): Promise<void> => {
    for (const end of ends.splice(0).reverse()) await end();
  };
  try {
    // A file and not a printed line, because it holds the password.
    writeFileSync(path.join(home, "database-url"), `${database.url()}\n`, { mode: 0o600 });
    const receiver = await startReceiver(RECEIVER_PORT, print);
    ends.push(() => receiver.stop());
    const variables = devVariables(database, receiver.url);
    const ownEnv = { ...LOOPBACK_ONLY, ...env, ...variables };
    const prepared = prepare({ env: { ...consoleVariables(ownEnv, configFile), ...ownEnv }, file: configFile });
    await serve(prepared, start, atEnd);
    print(firstScreen(prepared.config, receiver.url));
  } catch (error) {
    await atEnd();
    throw error;
  }
}

const RECEIVER_PORT = 8090;

/** The sample has no credentials and stays off the network, unless the caller's variables say otherwise. */
const LOOPBACK_ONLY: NodeJS.ProcessEnv = { SVC_SERVER_HOST: "127.0.0.1", SVC_SERVER_MANAGEMENTHOST: "127.0.0.1" };

function devVariables(database: EmbeddedPostgres, receiverUrl: string): NodeJS.ProcessEnv {
  return {
    SVC_DATABASE_TYPE: "postgresql",
    SVC_DATABASE_URL: `jdbc:postgresql://${database.host}:${database.port}/${database.database}?sslmode=disable`,
    SVC_DATABASE_USERNAME: database.user,
    SVC_DATABASE_PASSWORD: database.password.reveal(),
    RECEIVER_URL: receiverUrl,
  };
}

/** Switches the console on unless the configuration says otherwise, or has no credentials and is on the network. */
function consoleVariables(env: NodeJS.ProcessEnv, file: string): NodeJS.ProcessEnv {
  // What is wrong with it is reported when it is loaded for good.
  const { loaded } = inspectConfig({ env, file });
  if (loaded === undefined) return {};
  const { config, origins } = loaded;
  const { admin, server } = config;
  const { host, managementPort, managementHost = host } = server;
  if (origins.has("admin.console") || origins.has("admin.enabled")) return {};
  const on = { SVC_ADMIN_ENABLED: "true", SVC_ADMIN_CONSOLE: "true" };
  if (admin.auth !== undefined) return on;
  const isLocal = ["127.0.0.1", "::1", "[::1]", "localhost"].includes(
    (managementPort === undefined ? host : managementHost) ?? "",
  );
  return isLocal ? { ...on, SVC_ADMIN_INSECURE: "true", SVC_ADMIN_SHOWPAYLOADS: "true" } : {};
}

function firstScreen(config: Config, receiverUrl: string): string {
  const { httpPort, managementPort = httpPort } = config.server;
  const inbox = `http://localhost:${httpPort}${config.inbox.basePath}`;
  const sources = Object.values(config.sources).filter((source) => source.kind === "http");
  const sample = sources.some((source) => source.path === SAMPLE_PATH);
  const attempt = sample
    ? `Send a message (another id is another message):

  curl -i ${inbox}${SAMPLE_PATH} -H 'content-type: application/json' \\
    -d '{"id":"1","type":"created","customer":"c-1"}'`
    : `HTTP sources:\n\n${sources.map((source) => `  POST ${inbox}${source.path}`).join("\n") || "  none"}`;
  return `
svc is running. ${attempt}

What is delivered to ${receiverUrl} is printed here.
${config.admin.enabled && config.admin.console ? `Console  http://localhost:${managementPort}/console\n` : ""}Health   http://localhost:${managementPort}/health      Metrics  http://localhost:${managementPort}/metrics
The rows psql "$(cat .svc/database-url)" -c 'select * from outbox'
Ctrl-C stops everything; the data stays in .svc/
`;
}

/** Path of the sample's HTTP source. */
const SAMPLE_PATH = "/orders";

/**
 * The configuration that `svc dev` writes: one HTTP source, one HTTP destination, defaults for the rest.
 *
 * @param directory of the file, for the relative path of the schema in its modeline
 */
function sampleConfig(directory: string): string {
  return `# yaml-language-server: $schema=${schemaPath(directory)}
#
# Sample configuration of svc: messages come in at POST /inbox${SAMPLE_PATH} and go out to an HTTP receiver.
# Every key and its default: docs/configuration.md. Check a change with: svc config check --config svc.yml

server:
  httpPort: 8080

# svc dev runs its own PostgreSQL and overrides these three.
database:
  url: \${DATABASE_URL:-jdbc:postgresql://localhost:5432/svc}
  username: \${DATABASE_USERNAME:-svc}
  password: \${DATABASE_PASSWORD:-svc}

sources:
  orders:
    path: ${SAMPLE_PATH}
    idempotencyKeyPath: $.id          # a second message with the same id is a duplicate
    eventTypePath: $.type             # becomes the topic, by the template below
    aggregateIdPath: $.customer       # messages of one customer are delivered in order
    topic: orders.{{ eventType }}

destinations:
  receiver:
    baseUrl: \${RECEIVER_URL:-http://127.0.0.1:8090}   # svc dev puts the address of its built-in receiver here
    path: /orders
    timeoutMs: 5000

routes:
  - topicPattern: orders.**
    destination: receiver
`;
}

/** The path of the configuration's JSON Schema from `directory`. */
function schemaPath(directory: string): string {
  const file = path.join("dist", "config.schema.json");
  const folder = folderWith(file);
  return folder === undefined ? file : path.relative(directory, path.join(folder, file));
}

/**
 * Starts an HTTP receiver on 127.0.0.1 that accepts and prints every delivery.
 *
 * @param preferredPort taken when it is free, else any other
 * @param print called with one line per delivery
 */
async function startReceiver(preferredPort: number, print: (line: string) => unknown) {
  const server = createServer((req, res) => {
    void text(req).then(
      (body) => {
        print(deliveryLine(req, body));
        res.writeHead(204).end();
      },
      () => res.destroy(),
    );
  });
  const listen = (port: number) => once(server.listen(port, "127.0.0.1"), "listening");
  await listen(preferredPort).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EADDRINUSE") throw error;
    return listen(0);
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    stop: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

const LONGEST_BODY = 400;

function deliveryLine({ method, url, headers }: IncomingMessage, body: string): string {
  const shown = body.length > LONGEST_BODY ? `${body.slice(0, LONGEST_BODY)}... (${body.length} characters)` : body;
  return `delivered  ${method} ${url}  message ${String(headers["x-message-id"])}\n           ${escapeControls(shown)}`;
}
