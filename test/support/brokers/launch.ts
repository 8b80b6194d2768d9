import { rmSync } from "node:fs";
import { untilReady } from "./ready.ts";
import { type ServerProcess, type ServerProgram, startServerProcess } from "./serverProcess.ts";
import type { Launch } from "./types.ts";

/** A server that is one process: a signal ends it, and the same program starts it again. */
export interface ProgramLaunch<A> extends ServerProgram {
  /** For errors. */
  readonly name: string;
  /** What a client needs to reach it. */
  readonly address: A;
  /** Tries it as a client would; throws while it does not serve. */
  readonly answers: () => Promise<void>;
}

/**
 * Starts a server; settles when it serves.
 *
 * @throws Error with the last lines of its log when it does not come up
 */
export async function launchProgram<A>(launch: ProgramLaunch<A>): Promise<Launch<A>> {
  const { name, address, answers, ...program } = launch;
  let server: ServerProcess;
  const start = async () => {
    server = startServerProcess(program);
    await untilReady(name, program.folder, server, answers);
  };
  await start();
  return {
    address,
    start,
    stop: () => server.end("SIGTERM"),
    kill: () => server.end("SIGKILL"),
    [Symbol.asyncDispose]: async () => {
      await server.end("SIGKILL");
      rmSync(program.folder, { recursive: true, force: true });
    },
  };
}
