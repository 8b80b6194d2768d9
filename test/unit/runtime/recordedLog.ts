import type { Log } from "../../../src/ports/runtime.ts";

export interface RecordedLine {
  readonly level: "debug" | "info" | "warn" | "error";
  readonly message: string;
  readonly fields: Record<string, unknown>;
}

/** A log that keeps its lines. */
export function recordedLog(
  lines: RecordedLine[] = [],
  bound: object = {},
): { readonly log: Log; readonly lines: RecordedLine[] } {
  const at = (level: RecordedLine["level"]) => (fields: object, message: string) => {
    lines.push({ level, message, fields: { ...bound, ...fields } });
  };
  const child = (fields: object) => recordedLog(lines, { ...bound, ...fields }).log;
  return { lines, log: { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error"), child } };
}
