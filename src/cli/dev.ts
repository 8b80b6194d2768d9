import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Config } from "../config/types.ts";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../dev/embeddedPostgres.ts";
import { startReceiver } from "../dev/receiver.ts";
import { SAMPLE_PATH, sampleConfig } from "../dev/sampleConfig.ts";
import { prepare, serve } from "./run.ts";

interface DevArguments {
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
export async function dev({ env, file = "svc.yml", directory, print }: DevArguments): Promise<void> {
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
    const prepared = prepare({
      env: { ...LOOPBACK_ONLY, ...env, ...variables },
      file: configFile,
      roles: [],
      once: false,
    });
    await serve(prepared, atEnd);
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
Health   http://localhost:${managementPort}/health      Metrics  http://localhost:${managementPort}/metrics
The rows psql "$(cat .svc/database-url)" -c 'select * from outbox'
Ctrl-C stops everything; the data stays in .svc/
`;
}
