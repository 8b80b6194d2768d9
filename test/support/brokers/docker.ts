import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import path from "node:path";
import { eventually } from "../eventually.ts";
import { SERVING_TIMEOUT_MS } from "./ready.ts";
import { serverFolder } from "./runFolder.ts";
import type { BrokerKind, OwnServer } from "./types.ts";

const VARIABLE = "SVC_TEST_DOCKER_ANSWERED";
/** In a server's folder: the id of its container. */
const NOTE = "container";

/** Asks the Docker socket whether anybody is there, and tells the test files of the run by the environment. */
export async function lookForDocker(): Promise<void> {
  process.env[VARIABLE] = (await dockerAnswers()) ? "yes" : "no";
}

/** What `lookForDocker` found. */
export function dockerAnswered(): boolean {
  return process.env[VARIABLE] === "yes";
}

function dockerAnswers(): Promise<boolean> {
  const host = new URL(process.env.DOCKER_HOST || "unix:///var/run/docker.sock");
  const socket = { socketPath: host.pathname };
  const target = host.protocol === "unix:" ? socket : { host: host.hostname, port: Number(host.port || 2375) };
  return new Promise((resolve) => {
    const ping = request({ ...target, path: "/_ping", timeout: 3000 }, (response) => {
      resolve(response.statusCode === 200);
      response.resume();
    });
    ping.once("timeout", () => ping.destroy());
    ping.once("error", () => resolve(false));
    ping.once("close", () => resolve(false));
    ping.end();
  });
}

export interface ContainerOptions {
  readonly kind: BrokerKind | "sqlserver";
  readonly image: string;
  /** The server listens on it in the container; it is published at the same port of 127.0.0.1. */
  readonly port: number;
  /** The container's files by path. */
  readonly files: Readonly<Record<string, string>>;
  readonly environment?: Readonly<Record<string, string>>;
  readonly entrypoint?: readonly string[];
  readonly command?: readonly string[];
  /** Tries it as a client would; throws while it does not serve. */
  readonly answers: () => Promise<void>;
}

/**
 * Runs a server in a container, which keeps its data from one start to the next. The container ends with the test or the run; if
 * the run is cut off, testcontainers' own watcher ends it.
 */
export async function launchContainer(options: ContainerOptions): Promise<OwnServer> {
  const { GenericContainer, getContainerRuntimeClient } = await import("testcontainers");
  const { port } = options;
  class LoopbackContainer extends GenericContainer {
    protected override async beforeContainerCreated(): Promise<void> {
      this.hostConfig.PortBindings = { [`${port}/tcp`]: [{ HostIp: "127.0.0.1", HostPort: String(port) }] };
    }
  }
  const files = Object.entries(options.files).map(([target, content]) => ({ target, content, mode: 0o644 }));
  const specification = new LoopbackContainer(options.image)
    .withExposedPorts({ container: port, host: port })
    .withCopyContentToContainer(files)
    .withEnvironment(options.environment ?? {})
    .withStartupTimeout(SERVING_TIMEOUT_MS);
  if (options.entrypoint !== undefined) specification.withEntrypoint([...options.entrypoint]);
  if (options.command !== undefined) specification.withCommand([...options.command]);
  const started = await specification.start();
  writeFileSync(path.join(serverFolder(options.kind), NOTE), started.getId());

  const container = (await getContainerRuntimeClient()).container.getById(started.getId());
  const untilServing = async () => {
    try {
      await eventually(options.answers, {
        timeoutMs: SERVING_TIMEOUT_MS,
        intervalMs: 100,
        label: "an answer to a client",
      });
    } catch (error) {
      const log = (await container.logs({ stdout: true, stderr: true, tail: 30 })).toString();
      throw new Error(`the container of ${options.image} did not serve; the last lines of its log:\n${log}`, {
        cause: error,
      });
    }
  };
  await untilServing();
  return {
    start: async () => {
      await container.start();
      await untilServing();
    },
    stop: async () => {
      await container.stop({ t: 20 });
    },
    kill: async () => {
      await container.kill();
    },
    [Symbol.asyncDispose]: async () => {
      await container.remove({ force: true, v: true });
    },
  };
}

/**
 * Runs a shell command in the container that publishes a port.
 *
 * @param command the script and its arguments, from `$0` on
 * @throws Error when there is no such container
 */
export async function runInContainer(
  port: number,
  command: readonly string[],
): Promise<{ readonly code: number; readonly output: string }> {
  const { getContainerRuntimeClient } = await import("testcontainers");
  const { container } = await getContainerRuntimeClient();
  const found = (await container.list()).find(({ Ports }) => Ports.some(({ PublicPort }) => PublicPort === port));
  if (found === undefined) throw new Error(`no container serves port ${port}: run test/services/install.sh instead`);
  const { exitCode, output } = await container.exec(container.getById(found.Id), ["/bin/sh", "-c", ...command]);
  return { code: exitCode, output };
}

/** Removes the containers that are noted in the folders under `folder`. */
export async function endNotedContainers(folder: string): Promise<void> {
  const notes = readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .flatMap((entry) => readNote(path.join(folder, entry.name, NOTE)));
  if (notes.length === 0) return;
  const { getContainerRuntimeClient } = await import("testcontainers");
  const client = await getContainerRuntimeClient();
  for (const id of notes) {
    try {
      await client.container.getById(id).remove({ force: true, v: true });
    } catch (error) {
      if ((error as { readonly statusCode?: number }).statusCode !== 404) throw error;
    }
  }
}

function readNote(file: string): string[] {
  try {
    return [readFileSync(file, "utf8")];
  } catch {
    return [];
  }
}
