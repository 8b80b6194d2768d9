import type { AdapterTools } from "../../src/ports/kinds.ts";
import { type LogLine, recordingLog } from "./recorders.ts";

/** What a broker adapter is given, and the lines it logs. */
export function brokerTools(): { readonly tools: AdapterTools; readonly lines: LogLine[] } {
  const { log, lines } = recordingLog();
  const clock = { now: () => Date.now(), monotonic: () => performance.now() };
  return { tools: { log, clock, random: Math.random }, lines };
}
