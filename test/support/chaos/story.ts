import type { History } from "../history.ts";
import type { Verdict } from "./checker.ts";
import type { RowHistory } from "./claims.ts";
import type { Timeline } from "./timeline.ts";

/** How long before and after its own events the story of a violation begins and ends. */
const AROUND_MS = 8000;
const TOLD = 5;
const LOG_LINES = 12;

/**
 * Tells the violations of a run, one paragraph each: the events of the message in their order, the faults around them, and what the processes that had
 * claimed it logged about its row.
 *
 * @param log the last lines of the log of a process
 */
export function tell(
  { violations }: Verdict,
  history: History,
  timeline: Timeline,
  log: (process: string) => readonly string[],
): string {
  const told = violations.slice(0, TOLD).map((violation) => {
    const { message, what, row, other, otherRow } = violation;
    const events = [
      ...eventsOf(history, message, row, ""),
      ...(other === undefined ? [] : eventsOf(history, other, otherRow, `${other} `)),
    ];
    events.sort(([a], [b]) => a - b);
    const [first = 0, last = 0] = [events[0]?.[0], events.at(-1)?.[0]];
    const processes = [...new Set(row?.claims.map(({ replica }) => replica))];
    const logged = processes.flatMap((process) =>
      log(process)
        .filter((line) => row !== undefined && line.includes(row.rowId))
        .slice(-LOG_LINES)
        .map((line) => `${process}: ${line}`),
    );
    return [
      `${message} ${what}`,
      ...events.map(([at, text]) => `  ${timeline.seconds(at).padStart(12)}  ${text}`),
      "  faults around:",
      ...timeline.lines(first - AROUND_MS, last + AROUND_MS).map((line) => `  ${line}`),
      ...(logged.length === 0 ? [] : ["  log lines about its row:", ...logged.map((line) => `    ${line}`)]),
    ].join("\n");
  });
  const rest = violations.length - told.length;
  return [`${violations.length} violations`, ...told, ...(rest > 0 ? [`and ${rest} more`] : [])].join("\n\n");
}

/** @param of whose events they are, in front of each */
function eventsOf(
  history: History,
  message: string,
  row: RowHistory | undefined,
  of: string,
): readonly (readonly [number, string])[] {
  const known = history.of(message);
  const events: [number, string][] = [];
  const add = (at: number | undefined, text: string) => {
    if (at !== undefined && Number.isFinite(at)) events.push([at, `${of}${text}`]);
  };
  add(known?.sentAt, "sent");
  add(known?.acknowledgedAt, "acknowledged");
  add(row?.insertedAt, "inserted into the outbox");
  for (const { at, from, answered } of known?.arrivals ?? []) {
    add(at, `delivered by ${from}${answered ? "" : ", not answered"}`);
  }
  for (const { replica, from, until, end } of row?.claims ?? []) {
    add(from, `claimed by ${replica}`);
    add(until, `claim of ${replica} ended: ${end}`);
  }
  return events;
}
