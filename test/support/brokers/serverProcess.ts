import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { eventually } from "../eventually.ts";
import { ownerOf } from "./runFolder.ts";

/**
 * Runs "$@" in place of itself, and ends the whole process group as soon as the process with the id `$0` is gone: however the tests
 * end, no server outlives them.
 */
const KEEPER = 'leader=$$; (while kill -0 "$0" 2>/dev/null; do sleep 1; done; kill -KILL -"$leader") & exec "$@"';

export interface ServerProgram {
  readonly program: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** The server's own folder: its working directory, its log, and the note of its process id. */
  readonly folder: string;
  /** True when it serves all test files of the run and ends with the run. */
  readonly shared: boolean;
}

export interface ServerProcess {
  /** Rejects when the process ends; never resolves. To race against whatever waits for the server. */
  readonly ended: Promise<never>;
  /** Sends a signal to the server and waits until it and all processes it started are gone; after `graceMs` they are killed. */
  end(signal: NodeJS.Signals, graceMs?: number): Promise<void>;
}

/**
 * Starts a server as leader of a process group of its own.
 *
 * @returns as soon as the process runs; when it serves is for the caller to find out
 */
export function startServerProcess(server: ServerProgram): ServerProcess {
  const log = openSync(path.join(server.folder, "server.log"), "a");
  const owner = server.shared ? ownerOf() : process.pid;
  const child = spawn("/bin/sh", ["-c", KEEPER, String(owner), server.program, ...server.args], {
    cwd: server.folder,
    env: { PATH: process.env.PATH, ...server.env },
    stdio: ["ignore", log, log],
    detached: true,
  });
  closeSync(log);
  // It belongs to the run, not to the test that asked first.
  if (server.shared) child.unref();
  const { pid } = child;
  if (pid !== undefined) writeFileSync(path.join(server.folder, "pid"), `${pid} ${startTime(pid) ?? ""}`);

  const ended = once(child, "exit").then(([code, signal]) => {
    throw new Error(`it ended with ${signal ?? `code ${code}`}`);
  });
  ended.catch(() => {}); // An awaiting caller sees it.
  return { ended, end: (signal, graceMs = 20_000) => endChild(child, signal, graceMs) };
}

async function endChild(child: ChildProcess, signal: NodeJS.Signals, graceMs: number): Promise<void> {
  if (child.pid === undefined) return;
  if (child.exitCode === null && child.signalCode === null) {
    const exit = once(child, "exit");
    const impatience = setTimeout(() => child.kill("SIGKILL"), graceMs);
    if (signal === "SIGKILL") killGroup(child.pid);
    else child.kill(signal);
    await exit;
    clearTimeout(impatience);
  }
  await endGroup(child.pid);
}

/** Ends the servers whose processes are noted in the folders under `folder`, in this process or in any other. */
export async function endNotedProcesses(folder: string): Promise<void> {
  const notes = readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .flatMap((entry) => readNote(path.join(folder, entry.name, "pid")));
  await Promise.all(notes.map((pid) => endGroup(pid)));
}

/** The process id of a note, if the noted process still has it. */
function readNote(file: string): number[] {
  try {
    const [pid = "", ...time] = readFileSync(file, "utf8").split(" ");
    const now = startTime(Number(pid));
    // A group whose leader is gone may have members left; its number is not given to anybody else before they are gone.
    return now === undefined || now === time.join(" ") ? [Number(pid)] : [];
  } catch {
    return [];
  }
}

async function endGroup(group: number): Promise<void> {
  const isGone = () => !killGroup(group) || !hasLivingMembers(group);
  await eventually(isGone, { timeoutMs: 20_000, label: `the end of the process group ${group}` });
}

/** @returns whether the group had a process, including a zombie whose parent has not waited for it yet */
function killGroup(group: number): boolean {
  try {
    process.kill(-group, "SIGKILL");
    return true;
  } catch {
    return false;
  }
}

function hasLivingMembers(group: number): boolean {
  const isLiving = (fields: ProcessFields) => fields.group === group && !/^[ZX]/.test(fields.state);
  return allProcesses().some(isLiving);
}

interface ProcessFields {
  readonly state: string;
  readonly group: number;
}

function allProcesses(): ProcessFields[] {
  if (process.platform !== "linux") {
    const lines = execFileSync("ps", ["-A", "-o", "state=,pgid="], { encoding: "utf8" }).trim().split("\n");
    return lines
      .map((line) => line.trim().split(/\s+/))
      .map(([state = "", group]) => ({ state, group: Number(group) }));
  }
  const ids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return ids.flatMap((id) => {
    const [state, , group] = statFields(id) ?? [];
    return state === undefined ? [] : [{ state, group: Number(group) }];
  });
}

/** What Linux tells about a process after its name: its state, parent, process group and so on (proc_pid_stat(5), from field 3). */
function statFields(id: string): string[] | undefined {
  try {
    const stat = readFileSync(`/proc/${id}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  } catch {
    return undefined;
  }
}

/** When a process began, in a form that differs for a later process with the same id; undefined when there is none. */
function startTime(pid: number): string | undefined {
  if (process.platform === "linux") return statFields(String(pid))?.[19];
  try {
    return execFileSync("ps", ["-o", "lstart=", "-p", String(pid)], { encoding: "utf8", stdio: "pipe" }).trim();
  } catch {
    return undefined;
  }
}
