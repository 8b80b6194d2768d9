import { writeFileSync } from "node:fs";
import { compileEvaluation } from "../src/core/evaluation.ts";
import type { EvaluationBatch, WorkerMessage } from "../src/runtime/evaluation/protocol.ts";
import { EvaluationServer } from "../src/runtime/evaluation/server.ts";

/** Entry of an evaluation worker, a process that `EvaluatorPool` starts; it has no other use. */

function send(message: WorkerMessage): Promise<void> {
  return new Promise((resolve) => {
    // An error means that the service is gone: "disconnect" ends this process then.
    if (process.send === undefined) resolve();
    else process.send(message, undefined, undefined, () => resolve());
  });
}

function offerToOutOfMemoryKiller(): void {
  try {
    writeFileSync("/proc/self/oom_score_adj", "1000");
  } catch {
    // Only Linux has it.
  }
}

// A machine or container that runs out of memory is to take this process and not the service.
offerToOutOfMemoryKiller();
const server = new EvaluationServer({ compile: compileEvaluation, send });
process.on("message", (batch) => void server.receive(batch as EvaluationBatch));
process.on("disconnect", () => process.exit());
// A terminal sends its signals to every process: the service stops in its own order and ends this one last.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => {});
await send({ kind: "ready" });
