import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { connect } from "amqplib";
import { lastingPorts } from "./ports.ts";
import type { RabbitmqPrograms } from "./programs.ts";
import { SERVING_TIMEOUT_MS, untilReady } from "./ready.ts";
import { serverFolder } from "./runFolder.ts";
import { type ServerProcess, startServerProcess } from "./serverProcess.ts";
import type { Launch, OwnRabbitmq, RabbitmqAddress } from "./types.ts";

const HOST = "127.0.0.1";
const USER = "svc";
const PASSWORD = "svc-secret";

/** How long the application within a node may take to start or stop (ms): it takes one or two seconds. */
const APPLICATION_TIMEOUT_MS = 20_000;

/** One thread of each kind: a node for a few connections, on a machine that has other work. */
const SMALL = "+S 1:1 +SDcpu 1:1 +SDio 1 +A 1";

/** Starts a name server of the node's own, so that both end together, then the node. */
const WITH_NAME_SERVER = '"$0" -port "$ERL_EPMD_PORT" -address "$ERL_EPMD_ADDRESS" & exec "$1"';

export type RabbitmqLaunch = Launch<RabbitmqAddress> & OwnRabbitmq;

/** A RabbitMQ server of the programs of this machine, on 127.0.0.1 only. */
export async function launchRabbitmq(programs: RabbitmqPrograms, shared: boolean): Promise<RabbitmqLaunch> {
  const folder = serverFolder("rabbitmq");
  const [port = 0, nodePort = 0, namesPort = 0] = await lastingPorts(3);
  writeFileSync(path.join(folder, "rabbitmq.conf"), rabbitmqConfiguration(port));
  writeFileSync(path.join(folder, "enabled_plugins"), "[].");
  writeFileSync(path.join(folder, ".erlang.cookie"), randomBytes(16).toString("hex"), { mode: 0o400 });
  const env = environment(folder, nodePort, namesPort);
  const address = rabbitmqAddress(port);

  let server: ServerProcess | undefined;
  const evaluate = async (expressions: string, timeout = SERVING_TIMEOUT_MS) => {
    const options = { cwd: folder, env: { PATH: process.env.PATH, ...env }, timeout };
    if (programs.call === undefined) {
      await promisify(execFile)(programs.control, ["eval", expressions], options);
      return;
    }
    const calling = promisify(execFile)(programs.call, ["-r", "-e", "-sname", env.RABBITMQ_NODENAME], options);
    calling.child.stdin?.on("error", () => {}); // It has ended; the result below says how.
    calling.child.stdin?.end(`${expressions}\n`); // A full stop counts at the end of its line only.
    const { stdout } = await calling;
    if (!stdout.startsWith("{ok,")) throw new Error(`the RabbitMQ node answered ${stdout}`);
  };
  const kill = async () => {
    await server?.end("SIGKILL");
    server = undefined;
  };
  // A node that hangs in one of the two is killed: then the broker is away, and comes back, as well.
  const startApplication = () => evaluate("ok = rabbit:start().", APPLICATION_TIMEOUT_MS).catch(kill);
  const stopApplication = () => evaluate("ok = rabbit:stop().", APPLICATION_TIMEOUT_MS).catch(kill);
  const start = async () => {
    if (server !== undefined) await startApplication();
    if (server === undefined) {
      const args = ["-c", WITH_NAME_SERVER, programs.epmd, programs.server];
      server = startServerProcess({ program: "/bin/sh", args, env, folder, shared });
    }
    await untilReady("the RabbitMQ server", folder, server, () => rabbitmqAnswers(address));
  };
  await start();
  return {
    address,
    start,
    // The application within the node: listeners, connections and queues end as they do with the node, but in a second.
    stop: async () => {
      if (server !== undefined) await stopApplication();
    },
    kill,
    evaluate: (expressions) => evaluate(expressions),
    [Symbol.asyncDispose]: async () => {
      await kill();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Everything a node has by default in folders and at ports of the machine is the server's own. */
function environment(folder: string, nodePort: number, namesPort: number) {
  const loopbackOnly = "-kernel inet_dist_use_interface {127,0,0,1}";
  return {
    HOME: folder,
    LANG: "C.UTF-8",
    ERL_EPMD_PORT: String(namesPort),
    ERL_EPMD_ADDRESS: HOST,
    RABBITMQ_NODENAME: `svc-${namesPort}@localhost`,
    RABBITMQ_DIST_PORT: String(nodePort),
    RABBITMQ_MNESIA_BASE: path.join(folder, "data"),
    RABBITMQ_LOG_BASE: path.join(folder, "log"),
    RABBITMQ_LOGS: "-",
    RABBITMQ_CONFIG_FILE: path.join(folder, "rabbitmq"),
    RABBITMQ_ADVANCED_CONFIG_FILE: path.join(folder, "advanced"),
    RABBITMQ_CONF_ENV_FILE: path.join(folder, "rabbitmq-env.conf"),
    RABBITMQ_ENABLED_PLUGINS_FILE: path.join(folder, "enabled_plugins"),
    RABBITMQ_GENERATED_CONFIG_DIR: path.join(folder, "generated"),
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: `${loopbackOnly} ${SMALL}`,
    RABBITMQ_MAX_NUMBER_OF_PROCESSES: "16384",
    RABBITMQ_MAX_NUMBER_OF_ATOMS: "500000",
    RABBITMQ_CTL_ERL_ARGS: loopbackOnly,
    // Makes the start script become the node, so that a signal reaches the node itself.
    RUNNING_UNDER_SYSTEMD: "true",
  };
}

/** The text of a configuration file of a RabbitMQ server whose alarms do not stop publishers on a small machine. */
function rabbitmqConfiguration(port: number): string {
  return [
    `listeners.tcp.default = ${HOST}:${port}`,
    `default_user = ${USER}`,
    `default_pass = ${PASSWORD}`,
    "loopback_users = none",
    "disk_free_limit.absolute = 1MB",
    "vm_memory_high_watermark.absolute = 2GB",
    "log.console.level = info",
    "",
  ].join("\n");
}

function rabbitmqAddress(port: number): RabbitmqAddress {
  return { host: HOST, port, user: USER, password: PASSWORD, url: `amqp://${USER}:${PASSWORD}@${HOST}:${port}` };
}

/** Connects and opens a channel as a client would. */
async function rabbitmqAnswers(address: RabbitmqAddress): Promise<void> {
  const connection = await connect(address.url, { timeout: 5000 });
  connection.on("error", () => {}); // Its end, in whatever way, is awaited below.
  try {
    await connection.createChannel();
  } finally {
    await connection.close();
  }
}
