import { writeFileSync } from "node:fs";
import path from "node:path";
import { type ConnectionOptions, connect } from "nats";
import { launchProgram } from "./launch.ts";
import { lastingPorts } from "./ports.ts";
import { serverFolder } from "./runFolder.ts";
import type { Launch, NatsAddress } from "./types.ts";

const HOST = "127.0.0.1";

export interface NatsServerOptions {
  /** Together with `password`: what clients must show. */
  readonly user?: string;
  readonly password?: string;
  /** What clients must show, instead of user and password. */
  readonly token?: string;
  /** Default true. */
  readonly jetStream?: boolean;
  /** Bytes (default the server's own: 1 MiB). */
  readonly maxPayload?: number;
}

/** A NATS server of a program of this machine, on 127.0.0.1 only. */
export async function launchNats(
  program: string,
  shared: boolean,
  options: NatsServerOptions = {},
): Promise<Launch<NatsAddress>> {
  const folder = serverFolder("nats");
  const [port = 0] = await lastingPorts(1);
  const configFile = path.join(folder, "nats.conf");
  writeFileSync(configFile, natsConfiguration({ host: HOST, port, storeFolder: path.join(folder, "data"), options }));
  return launchProgram({
    name: "the NATS server",
    program,
    args: ["-c", configFile],
    env: { HOME: folder },
    folder,
    shared,
    address: natsAddress(port),
    answers: () => natsAnswers(port, options),
  });
}

/** The text of a configuration file of a NATS server. JSON is within its syntax. */
export function natsConfiguration(server: {
  readonly host: string;
  readonly port: number;
  readonly storeFolder: string;
  readonly options: NatsServerOptions;
}): string {
  const { user, password, token, jetStream = true, maxPayload } = server.options;
  const limits = { max_memory_store: 64 * 1024 * 1024, max_file_store: 1024 * 1024 * 1024 };
  return JSON.stringify({
    host: server.host,
    port: server.port,
    ...(maxPayload === undefined ? {} : { max_payload: maxPayload }),
    ...(user === undefined ? {} : { authorization: { user, password } }),
    ...(token === undefined ? {} : { authorization: { token } }),
    ...(jetStream ? { jetstream: { store_dir: server.storeFolder, ...limits } } : {}),
  });
}

function natsAddress(port: number): NatsAddress {
  return { host: HOST, port, url: `nats://${HOST}:${port}` };
}

/** Connects as a client would. */
export async function natsAnswers(port: number, options: NatsServerOptions): Promise<void> {
  const { user, password, token, jetStream = true } = options;
  const credentials: ConnectionOptions = {
    ...(user === undefined ? {} : { user }),
    ...(password === undefined ? {} : { pass: password }),
    ...(token === undefined ? {} : { token }),
  };
  const client = await connect({ servers: `${HOST}:${port}`, timeout: 5000, reconnect: false, ...credentials });
  try {
    if (jetStream) await client.jetstreamManager({ timeout: 5000 }).then((manager) => manager.getAccountInfo());
  } finally {
    await client.close();
  }
}
