import { readFileSync } from "node:fs";
import path from "node:path";
import { eventually } from "../eventually.ts";
import type { ServerProcess } from "./serverProcess.ts";

/** How long a server may take until it serves (ms). */
export const SERVING_TIMEOUT_MS = 90_000;
/** The timeout of a hook or test that waits for a server (ms): long enough to hear why one does not come up. */
export const START_TIMEOUT_MS = SERVING_TIMEOUT_MS + 30_000;

/**
 * Waits until a server answers in its own protocol.
 *
 * @param name for the error
 * @param folder where its log is
 * @param answers tries it as a client would; throws while it does not serve
 * @throws Error with the last lines of the log when the process ends or the time is over
 */
export async function untilReady(
  name: string,
  folder: string,
  server: ServerProcess,
  answers: () => Promise<void>,
): Promise<void> {
  let isOver = false;
  const attempt = async () => {
    if (!isOver) await answers();
  };
  try {
    await Promise.race([
      server.ended,
      eventually(attempt, { timeoutMs: SERVING_TIMEOUT_MS, intervalMs: 100, label: "an answer to a client" }),
    ]);
  } catch (error) {
    isOver = true;
    await server.end("SIGKILL");
    const why = error instanceof Error ? error.message : String(error);
    throw new Error(`${name} did not come up: ${why}; the last lines of its log:\n${lastLines(folder)}`);
  }
}

/** The last lines of a server's log. */
function lastLines(folder: string): string {
  const log = readFileSync(path.join(folder, "server.log"), "utf8").trimEnd();
  return log === "" ? "(nothing)" : log.split("\n").slice(-30).join("\n");
}
