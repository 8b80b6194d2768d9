import { writeFileSync, writeSync } from "node:fs";
import { compileEvaluation } from "../src/core/transform/evaluation.ts";
import {
  type EvaluationRequest,
  REPORT_FD,
  reportLine,
  type WorkerReport,
} from "../src/runtime/evaluation/protocol.ts";
import { EvaluationServer } from "../src/runtime/evaluation/server.ts";

/** Entry of an evaluation worker, a process that `EvaluatorPool` starts; it has no other use. */

function send(report: WorkerReport): void {
  const bytes = Buffer.from(reportLine(report));
  try {
    for (let written = 0; written < bytes.length; ) written += writeSync(REPORT_FD, bytes, written);
  } catch {
    // The service is gone.
    process.exit();
  }
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
process.on("message", (requests) => void server.receive(requests as readonly EvaluationRequest[]));
process.on("disconnect", () => process.exit());
// A terminal sends its signals to every process: the service stops in its own order and ends this one last.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => {});
send({ kind: "ready" });
