import { availableParallelism, totalmem } from "node:os";

/** The evaluation workers of a process. */
interface WorkerSizing {
  readonly workers: number;
  /** Largest heap of one worker, in MiB. */
  readonly memoryLimitMb: number;
  /** What limits their number; absent at the maximum. */
  readonly limitedBy?: "processors" | "memory";
}

/** A payload of some MiB takes a multiple of its size while it is transformed. */
const MEMORY_MB = 256;
/** Enough for small payloads. */
const LEAST_MEMORY_MB = 64;
/** What a worker takes besides its heap: full heaps of 64, 144 and 256 MiB had 135, 209 and 316 MiB resident. */
const OVERHEAD_MB = 70;
/** More would take the processors that deliveries and the database need. */
const MOST_WORKERS = 4;
/** For the lanes that are served apart: one more worker, as large as the others. */
const WORKERS_APART = 1;
/** The process itself under load (150 to 250 MiB), and a worker that starts before its predecessor ends (55 MiB). */
const OWN_MB = 300;
const MEBIBYTE = 1024 * 1024;

/**
 * As many workers as the machine or the container has room for, each with its heap full; one processor and the memory
 * it needs are left to the process itself. Below 568 MiB they may take more than there is.
 *
 * @param machine default: what this process has; `memory` in bytes
 */
export function workerSizing(
  machine: { readonly processors: number; readonly memory: number } = thisMachine(),
): WorkerSizing {
  const room = machine.memory / MEBIBYTE - OWN_MB;
  const fitting = Math.max(1, Math.floor(room / (MEMORY_MB + OVERHEAD_MB)) - WORKERS_APART);
  const spare = Math.max(1, machine.processors - 1);
  const workers = Math.min(MOST_WORKERS, spare, fitting);
  const ofOne = Math.floor(room / (workers + WORKERS_APART)) - OVERHEAD_MB;
  const memoryLimitMb = Math.max(LEAST_MEMORY_MB, Math.min(MEMORY_MB, ofOne));
  if (workers === MOST_WORKERS) return { workers, memoryLimitMb };
  return { workers, memoryLimitMb, limitedBy: fitting < spare ? "memory" : "processors" };
}

function thisMachine(): { readonly processors: number; readonly memory: number } {
  // Without a limit it is 0, or more than there is.
  const limit = process.constrainedMemory() || Number.POSITIVE_INFINITY;
  return { processors: availableParallelism(), memory: Math.min(limit, totalmem()) };
}
