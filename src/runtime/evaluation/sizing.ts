import { availableParallelism, totalmem } from "node:os";

/** The evaluation workers of a process. */
export interface WorkerSizing {
  readonly workers: number;
  /** Largest heap of one worker, in MiB. */
  readonly memoryLimitMb: number;
}

/** A payload of some MiB takes a multiple of its size while it is transformed. */
const MEMORY_MB = 256;
/** Enough for small payloads, whatever there is. */
const LEAST_MEMORY_MB = 64;
/** What a worker takes beside its heap. */
const OVERHEAD_MB = 60;
/** More would take the processors that deliveries and the database need. */
const MOST_WORKERS = 4;
/** Of the memory; the rest is the process' own. */
const SHARE_OF_WORKERS = 0.4;
const MEBIBYTE = 1024 * 1024;

/**
 * As many workers as the machine or the container has room for: one processor is left to the process itself, and most of the memory. A node of many
 * processors says nothing about the container on it.
 *
 * @param machine default: what this process has; `memory` in bytes
 */
export function workerSizing(
  machine: { readonly processors: number; readonly memory: number } = thisMachine(),
): WorkerSizing {
  const memoryMb = (machine.memory * SHARE_OF_WORKERS) / MEBIBYTE;
  const fitting = Math.floor(memoryMb / (MEMORY_MB + OVERHEAD_MB));
  const workers = Math.max(1, Math.min(MOST_WORKERS, machine.processors - 1, fitting));
  const ofOne = Math.floor(memoryMb / workers) - OVERHEAD_MB;
  return { workers, memoryLimitMb: Math.max(LEAST_MEMORY_MB, Math.min(MEMORY_MB, ofOne)) };
}

function thisMachine(): { readonly processors: number; readonly memory: number } {
  // Without a limit it is 0, or more than there is.
  const limit = process.constrainedMemory() || Number.POSITIVE_INFINITY;
  return { processors: availableParallelism(), memory: Math.min(limit, totalmem()) };
}
