import { readFileSync } from "node:fs";
import { workerSizing } from "../../../src/runtime/evaluation/pool.ts";
import type { Replica } from "./replica.ts";

/** What a pod of the chart may have. Its one evaluation worker is among that; on a larger machine each further one takes some more. */
const MOST_MEMORY_MIB = 512 + 60 * (workerSizing().workers - 1);
const LOOK_MS = 500;

/** Watches what the replicas take of memory: of each process with its own children, the evaluation workers. On Linux only; elsewhere it sees nothing. */
export class MemoryWatch {
  readonly #timer: NodeJS.Timeout;
  readonly #most = new Map<string, number>();
  readonly #allowed: number;

  /** @param allowed MiB */
  constructor(replicas: readonly Pick<Replica, "name" | "pid">[], allowed = MOST_MEMORY_MIB) {
    this.#allowed = allowed;
    this.#timer = setInterval(() => {
      for (const { name, pid } of replicas) {
        const mebibytes = pid === undefined ? 0 : memoryOf(pid);
        if (mebibytes > (this.#most.get(name) ?? 0)) this.#most.set(name, mebibytes);
      }
    }, LOOK_MS);
  }

  /** The most that any process took, in MiB. */
  get most(): number {
    return Math.max(0, ...this.#most.values());
  }

  /** Who took more than allowed, a line each. */
  wrong(): readonly string[] {
    return [...this.#most]
      .filter(([, mebibytes]) => mebibytes > this.#allowed)
      .map(([name, mebibytes]) => `${name} took ${mebibytes} MiB of memory, and ${this.#allowed} MiB are allowed`);
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}

/**
 * Resident memory of a process and its children, in MiB. Of the process itself it is the most that it ever was, so that no short peak is missed;
 * 0 for one that has ended.
 */
function memoryOf(pid: number): number {
  try {
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").split(" ").filter(Boolean);
    const workers = children.map((child) => kibibytes(Number(child), "VmRSS"));
    return Math.round(workers.reduce((total, each) => total + each, kibibytes(pid, "VmHWM")) / 1024);
  } catch {
    return 0;
  }
}

function kibibytes(pid: number, field: string): number {
  const line = readFileSync(`/proc/${pid}/status`, "utf8").match(new RegExp(`^${field}:\\s+(\\d+) kB`, "m"));
  return Number(line?.[1] ?? 0);
}
