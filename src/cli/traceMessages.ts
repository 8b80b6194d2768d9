import { createTrace } from "../../roles/trace.ts";
import type { FilteredMessage, Timeline, TimelineEvent } from "../core/trace/timeline.ts";
import { MOST_MEANT } from "../core/trace/trace.ts";
import { MOST_COUNTED } from "../ports/journalStore.ts";
import { systemClock } from "../time/clock.ts";
import { onDatabase } from "./database.ts";
import { type CommandIo, plainText } from "./io.ts";

interface TraceArguments {
  /** `--config` */
  readonly file: string | undefined;
  /** What somebody has in hand of the message. */
  readonly text: string;
  readonly json: boolean;
}

const NOT_FOUND_CODE = 3;

/**
 * `svc trace`. Sets the exit code to 3 when there is no such message.
 *
 * @throws ConfigError for a bad configuration, StoreError when no database answers
 */
export async function traceMessages({ file, text, json }: TraceArguments, io: CommandIo): Promise<void> {
  await onDatabase(io, {
    file,
    endsOnSignal: false,
    async work({ config, store, secrets }) {
      await store.schema.checkColumns(["outbox", "destinations"]);
      const trace = createTrace({ config, store, secrets, clock: systemClock });
      const { ids, filtered } = await trace.meant(text);
      const found = await Promise.all(ids.map((id) => trace.timeline(id)));
      const timelines = found.flatMap((each) => (each === undefined ? [] : [each.timeline]));
      const isFound = timelines.length + filtered.length > 0;
      if (!isFound) io.setExitCode(NOT_FOUND_CODE);
      if (json) {
        const dropped = filtered.map((each) => ({ state: "filtered", ...each }));
        return `${JSON.stringify([...timelines, ...dropped], null, 2)}\n`;
      }
      return isFound ? textOf(timelines, filtered) : notFound(text);
    },
  });
}

function notFound(text: string): string {
  return (
    `no message has ${plainText(JSON.stringify(text), 100)} as id, idempotency key, correlation id or key. ` +
    "It was never received, a source's filter dropped it, retention deleted it, or its correlation id or key is far behind the newest rows\n"
  );
}

function textOf(timelines: readonly Timeline[], filtered: readonly FilteredMessage[]): string {
  const more = timelines.length >= MOST_MEANT ? `the newest ${MOST_MEANT} messages:\n\n` : "";
  return `${more}${[...timelines.map(timelineText), ...filtered.map(filteredText)].join("\n")}`;
}

function filteredText(message: FilteredMessage): string {
  const { at, source, replica } = message;
  const what = `received from ${source} and dropped by the filter of this source (by ${replica})`;
  const facts = factsText(message, ["source", "idempotencyKey", "correlationId"]);
  return `filtered: no row was stored\n${facts}    ${at.toISOString().padEnd(TIME_WIDTH)}${plainText(what, MOST_SHOWN)}\n`;
}

function factsText<K extends keyof typeof LABELS>(of: Readonly<Record<K, string | null>>, names: readonly K[]): string {
  const lines = names.map((name) => {
    const value = of[name];
    return value === null ? "" : `  ${LABELS[name].padEnd(LABEL_WIDTH)}${plainText(value, MOST_SHOWN)}\n`;
  });
  return lines.join("");
}

function timelineText(timeline: Timeline): string {
  const { id, state, attempts, maxAttempts, waits, events, hasHistory } = timeline;
  const of = maxAttempts === null ? "" : ` of ${maxAttempts}`;
  const facts = factsText(timeline, ["source", "idempotencyKey", "correlationId", "topic", "key", "destination"]);
  const why = waits.map(({ text }) => `  ${"waits".padEnd(LABEL_WIDTH)}${plainText(text, MOST_SHOWN)}\n`);
  const without = hasHistory
    ? ""
    : `  ${"history".padEnd(LABEL_WIDTH)}its table cannot be read: attempts and actions are missing below\n`;
  const { duplicates } = timeline;
  const again =
    duplicates === null || duplicates === 0
      ? ""
      : `  ${"duplicates".padEnd(LABEL_WIDTH)}${duplicates}${duplicates >= MOST_COUNTED ? " or more" : ""} in the last 24 hours\n`;
  const failed = attempts === 0 ? "" : `, ${attempts}${of} attempts failed`;
  return `${id}  ${state}${failed}\n${facts}${why.join("")}${without}${again}${events.map(eventText).join("")}`;
}

const LABELS = {
  source: "source",
  idempotencyKey: "idempotency key",
  correlationId: "correlation id",
  topic: "topic",
  key: "key",
  destination: "destination",
} as const;
const LABEL_WIDTH = 18;
const MOST_SHOWN = 300;

function eventText({ at, text, attempt, actor, destination, code, status, durationMs, reason }: TimelineEvent): string {
  const about = [
    ...(attempt === undefined ? [] : [`attempt ${attempt}`]),
    ...(destination === undefined ? [] : [`to ${destination}`]),
    ...(actor === undefined ? [] : [`by ${actor}`]),
    ...(durationMs === undefined ? [] : [`${durationMs} ms`]),
    ...[code, status].filter((each) => each !== undefined),
  ].join(", ");
  const line = `${text}${about === "" ? "" : ` (${about})`}${reason === undefined ? "" : `: ${reason}`}`;
  return `    ${(at?.toISOString() ?? "-").padEnd(TIME_WIDTH)}${plainText(line, MOST_SHOWN)}\n`;
}

const TIME_WIDTH = 26;
