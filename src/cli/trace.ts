import { STORABLE } from "../core/operations/syntax.ts";
import type { FilteredMessage, Timeline, TimelineEvent } from "../core/operations/timeline.ts";
import { MOST_MEANT } from "../core/operations/trace.ts";
import { MOST_COUNTED } from "../ports/journalStore.ts";
import { type DatabaseWork, databaseAction } from "./database.ts";
import { type AddCommands, type CommandIo, FILE_OPTION, optionParser, plainText } from "./io.ts";

export const addTraceCommand: AddCommands = (program, io) => {
  program
    .command("trace")
    .description("show what happened to a message, and why it waits")
    .argument("<text>", "its id, idempotency key, correlation id, or the key of its rows", optionParser(STORABLE.parse))
    .option(...FILE_OPTION)
    .option("--json", "print what GET /admin/messages/{id} answers with, in an array")
    .addHelpText("after", EXAMPLES)
    .action(
      databaseAction(io, ({ json = false }: { readonly json?: boolean }, { args: [text = ""] }) =>
        traceMessages(text, json, io),
      ),
    );
};

const EXAMPLES = `
Reads the database of the configuration: no other process need run. An id or an idempotency key is found by an index; a correlation id or a key is searched among
the newest rows, for ten seconds at most. Several messages may have it: the newest 20 are shown.

Exit codes: 0 found, 3 no such message, 2 configuration or usage error, 1 anything else.

Examples:
  svc trace 01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f      by id, as in the log and in x-message-id
  svc trace order-4711                                by idempotency key, correlation id or key
  svc trace order-4711 --json | jq '.[0].waits'`;

const NOT_FOUND_CODE = 3;

function traceMessages(text: string, json: boolean, io: CommandIo): DatabaseWork {
  return {
    tables: ["outbox", "destinations"],
    async work({ trace }) {
      const { ids, filtered } = await trace.meantMessages(text);
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
  };
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
  const facts = factsText(message, ["cell", "source", "idempotencyKey", "correlationId"]);
  return `filtered: no row was stored\n${facts}    ${at.toISOString().padEnd(TIME_WIDTH)}${plainText(what, MOST_SHOWN)}\n`;
}

function factsText<K extends keyof typeof LABELS>(
  of: { readonly [Fact in K]?: string | null | undefined },
  names: readonly K[],
): string {
  const lines = names.map((name) => {
    const value = of[name];
    return value === null || value === undefined
      ? ""
      : `  ${LABELS[name].padEnd(LABEL_WIDTH)}${plainText(value, MOST_SHOWN)}\n`;
  });
  return lines.join("");
}

function timelineText(timeline: Timeline): string {
  const { id, state, attempts, maxAttempts, deliveries, waits, events, hasHistory } = timeline;
  const of = maxAttempts === null ? "" : ` of ${maxAttempts}`;
  const facts = factsText(timeline, [
    "cell",
    "source",
    "idempotencyKey",
    "correlationId",
    "topic",
    "key",
    "destination",
    "messageId",
    "summary",
    timeline.traceUrl === null ? "traceId" : "traceUrl",
  ]);
  const made = deliveries.map(deliveryText);
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
  return `${id}  ${state}${failed}\n${facts}${made.join("")}${why.join("")}${without}${again}${events.map(eventText).join("")}`;
}

const LABELS = {
  cell: "cell",
  source: "source",
  idempotencyKey: "idempotency key",
  correlationId: "correlation id",
  topic: "topic",
  key: "key",
  destination: "destination",
  messageId: "delivery of",
  summary: "deliveries",
  traceId: "trace",
  traceUrl: "trace",
} as const;
const LABEL_WIDTH = 18;
const MOST_SHOWN = 300;

function deliveryText({ id, destination, state, attempt, lastError }: Timeline["deliveries"][number]): string {
  const failed = attempt === 0 ? "" : `, ${attempt} attempt${attempt === 1 ? "" : "s"} failed`;
  const line = `${destination}: ${state}${failed} (${id})${lastError === null ? "" : `: ${lastError}`}`;
  return `    ${plainText(line, MOST_SHOWN)}\n`;
}

function eventText(event: TimelineEvent): string {
  const { at, text, reason } = event;
  const facts = factsOf(event);
  const line = `${text}${facts === "" ? "" : ` (${facts})`}${reason === undefined ? "" : `: ${reason}`}`;
  return `    ${(at?.toISOString() ?? "-").padEnd(TIME_WIDTH)}${plainText(line, MOST_SHOWN)}\n`;
}

const TIME_WIDTH = 26;

type Facts = "attempt" | "destination" | "actor" | "durationMs" | "code" | "status";

/** What is known of an attempt, or of an operator's action, on one line. */
export function factsOf(event: { readonly [Fact in Facts]?: string | number | null | undefined }): string {
  const { attempt, destination, actor, durationMs, code, status } = event;
  const facts = [
    [attempt, `attempt ${attempt}`],
    [destination, `to ${destination}`],
    [actor, `by ${actor}`],
    [durationMs, `${durationMs} ms`],
    [code, code],
    [status, status],
  ] as const;
  return facts.flatMap(([value, text]) => (value === null || value === undefined ? [] : [text])).join(", ");
}
