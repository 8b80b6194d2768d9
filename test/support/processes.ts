import { type ChildProcess, type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterAll, afterEach } from "@jest/globals";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
/** The built command line, made by `npm run build`. */
export const SVC_BINARY = path.join(ROOT, "dist", "roles", "svc.js");

/**
 * URL of a built module, to import it in a process that cannot read TypeScript.
 *
 * @param source its path from the root, such as `src/runtime/log.ts`
 */
export function builtModule(source: string): string {
  const built = path.join(ROOT, "dist", source.replace(/\.ts$/, ".js"));
  if (!existsSync(built)) throw new Error(`${built} does not exist: run "npm run build" first`);
  return pathToFileURL(built).href;
}

export interface RunOptions {
  /** The whole environment of the process besides PATH: variables of the developer's shell do not reach it. */
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** In a process group of its own, so that `process.kill(-pid, signal)` reaches it as a terminal would (default false). */
  readonly ownGroup?: boolean;
}

export interface RunningProcess {
  readonly pid: number;
  /** All lines so far, of standard output and standard error, in the order they came. */
  readonly lines: readonly string[];
  readonly stdout: readonly string[];
  readonly stderr: readonly string[];
  /** Settles when the process has ended and its output is complete. */
  readonly exited: Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }>;
  /**
   * The first line that matches, whether it has come already or comes within `timeoutMs` (default 10,000).
   *
   * @param from how many of the first lines are not looked at (default 0)
   * @throws Error with the last lines when the time is over or the process has ended
   */
  waitForLine(pattern: RegExp, timeoutMs?: number, from?: number): Promise<RegExpExecArray>;
  /** Sends a signal (default SIGTERM) to this very process. */
  kill(signal?: NodeJS.Signals): void;
  /** Nobody reads its standard output from now on: the end of a broken pipe. */
  closeOutput(): void;
}

export interface Processes {
  /** Runs `svc` with arguments. */
  svc(args: readonly string[], options?: RunOptions): RunningProcess;
  /** Runs any JavaScript file with this Node. */
  node(args: readonly string[], options?: RunOptions): RunningProcess;
}

/**
 * Processes that end with the test, passed or failed: each one is killed by its id. Call it at the top level of the file or of a
 * `describe` block.
 *
 * @param scope whether they end after each test or after all tests of the block
 */
export function useProcesses(scope: "test" | "block" = "test"): Processes {
  const running = new Set<ChildProcess>();
  const cleanUp = async () => {
    const ends = [...running].map((child) => once(child, "close"));
    for (const child of running) child.kill("SIGKILL");
    await Promise.all(ends);
  };
  if (scope === "test") afterEach(cleanUp);
  afterAll(cleanUp);

  const node = (args: readonly string[], options: RunOptions = {}) => {
    const child = spawn(process.execPath, args, {
      cwd: options.cwd ?? ROOT,
      env: { PATH: process.env.PATH, ...options.env },
      stdio: ["ignore", "pipe", "pipe"],
      detached: options.ownGroup ?? false,
    });
    running.add(child);
    child.once("close", () => running.delete(child));
    return observe(child);
  };
  return {
    node,
    svc: (args, options) => {
      if (!existsSync(SVC_BINARY)) throw new Error(`${SVC_BINARY} does not exist: run "npm run build" first`);
      return node([SVC_BINARY, ...args], options);
    },
  };
}

type PipedProcess = ChildProcessByStdio<null, Readable, Readable>;

function observe(child: PipedProcess): RunningProcess {
  const lines: string[] = [];
  const stdout: string[] = [];
  const stderr: string[] = [];
  const listeners = new Set<(line: string) => void>();
  const collect = (stream: NodeJS.ReadableStream, own: string[]) =>
    createInterface({ input: stream }).on("line", (line) => {
      own.push(line);
      lines.push(line);
      for (const listener of [...listeners]) listener(line);
    });
  collect(child.stdout, stdout);
  collect(child.stderr, stderr);
  const exited = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code, signal) => resolve({ code, signal }));
  });
  exited.catch(() => {}); // An awaiting test sees the error; a test that does not await it must not crash the run.

  const waitForLine = (pattern: RegExp, timeoutMs = 10_000, from = 0) =>
    new Promise<RegExpExecArray>((resolve, reject) => {
      const finish = (settle: () => void) => {
        clearTimeout(timer);
        listeners.delete(look);
        settle();
      };
      const look = (line: string) => {
        const match = new RegExp(pattern.source, pattern.flags.replace(/[gy]/g, "")).exec(line);
        if (match !== null) finish(() => resolve(match));
      };
      const fail = (why: string) =>
        finish(() =>
          reject(new Error(`no line matched ${pattern}: ${why}; the last lines:\n${lines.slice(-20).join("\n")}`)),
        );
      const timer = setTimeout(() => fail(`waited ${timeoutMs} ms`), timeoutMs);
      listeners.add(look);
      for (const line of lines.slice(from)) look(line);
      exited.then(
        ({ code, signal }) => fail(`the process ended with ${signal ?? code}`),
        (error: Error) => fail(error.message),
      );
    });

  return {
    pid: child.pid ?? 0,
    lines,
    stdout,
    stderr,
    exited,
    waitForLine,
    kill: (signal = "SIGTERM") => {
      child.kill(signal);
    },
    closeOutput: () => {
      child.stdout.destroy();
    },
  };
}
