import { destinationKindOf } from "../adapters/kinds.ts";
import { loadConfig } from "../config/load.ts";
import { targetsOf } from "../config/routes.ts";
import type { Config, DestinationConfig, RouteTarget, TransformConfig } from "../config/types.ts";
import { MAX_RETRY_DELAY_MS } from "../core/delivery/failure.ts";
import {
  type MessageFields,
  messageFields,
  parseRoutingKeyTemplate,
  type RoutingKey,
  renderRoutingKey,
} from "../core/delivery/template.ts";
import type { DestinationOverview } from "../core/operations/shown.ts";
import { COLUMN_MAX_ATTEMPTS } from "../model/rows.ts";
import { maskUrls } from "../model/secret.ts";
import { escapeControls } from "../model/text.ts";
import { compileTopicPattern } from "../model/topicPattern.ts";
import { addressingOf } from "../setup/destinations.ts";
import { onDatabase } from "./database.ts";
import { listing, stateSummary } from "./destinations.ts";
import { type AddCommands, action, FILE_OPTION, readInput } from "./io.ts";

interface ExplainOptions {
  readonly config?: string;
  readonly key?: string;
  readonly aggregateType?: string;
  readonly payload?: string;
  readonly state?: boolean;
}

const EXIT_NOT_DELIVERED = 1;

export const addExplainCommand: AddCommands = (program, io) => {
  const explain = program.command("explain").description("show what the configuration does with a message");
  explain.addHelpText("after", EXAMPLES);
  explain
    .command("topic")
    .description(
      "show the route of a row with this topic, and its destinations with limits, transforms, address and key",
    )
    .argument("<name>", "topic of the outbox row")
    .option(...FILE_OPTION)
    .option("--key <key>", "the row's key (default: none)")
    .option("--aggregate-type <type>", "the row's aggregate type (default: none)")
    .option(
      "--payload <file>",
      "file with the row's payload, for templates that take a field of it; - is standard input",
    )
    .option("--state", "show the state of each destination, from the database")
    .addHelpText("after", EXAMPLES)
    .action(
      action(async (options: ExplainOptions, command) => {
        const { config: file, key = null, aggregateType = null, payload } = options;
        const { config } = loadConfig({ env: io.env, file, readFile: io.readFile });
        const { lines, targets } = explainTopic(config, {
          topic: command.args[0] ?? "",
          key,
          aggregateType,
          payload: payload === undefined ? null : await readInput(command, "--payload", payload, io),
        });
        const every = [...lines, ...targets.flatMap((target) => target.lines)];
        const width = Math.max(...every.map(([label]) => label.length));
        const textOf = (rows: readonly DestinationOverview[] = []) =>
          [
            ...lines,
            ...targets.flatMap(({ destination, lines: own }) => {
              const states = rows.filter(({ name }) => name === destination);
              return [...own, ...states.map((row) => ["state", stateSummary(row)] as const)];
            }),
          ]
            .map(([label, text]) => `${label.padEnd(width)}  ${escapeControls(text)}\n`)
            .join("");
        if (options.state === true && targets.length > 0) await onDatabase(io, file, listing(textOf));
        else io.stdout.write(textOf());
        if (targets.length === 0) io.setExitCode(EXIT_NOT_DELIVERED);
      }),
    );
};

/** Label and text of each. */
type Lines = readonly (readonly [string, string])[];

const EXAMPLES = `
Only --state needs the database. Exit code 1 when no route matches: such a row goes dead.

Examples:
  svc explain topic order.created --config svc.yml
  svc explain topic order.created --key c-1 --payload order.json    with what the address templates take
  svc explain topic order.created --state                           whether it is paused, what waits`;

interface ExplainedRow {
  readonly topic: string;
  readonly key: string | null;
  readonly aggregateType: string | null;
  /** The stored payload; null when it is not known. */
  readonly payload: string | null;
}

interface ExplainedTarget {
  readonly destination: string;
  readonly lines: Lines;
}

/**
 * What the poller would do with a row: route, and for each destination limits, transforms, address and key.
 *
 * @returns `targets`: empty if no route matches: such a row goes dead
 */
function explainTopic(
  config: Pick<Config, "routes" | "destinations" | "outbox">,
  row: ExplainedRow,
): { readonly lines: Lines; readonly targets: readonly ExplainedTarget[] } {
  const matching = config.routes.flatMap((route, index) => {
    if (!compileTopicPattern(route.topicPattern)(row.topic)) return [];
    const targets = targetsOf(route, index);
    const names = targets.map(({ destination }) => destination).join(", ");
    const path = `routes[${index}]`;
    return [{ path, targets, named: `${path} ${JSON.stringify(route.topicPattern)} to ${names}` }];
  });
  const [first, ...shadowed] = matching;
  const topic = ["topic", row.topic] as const;
  if (first === undefined) {
    const patterns = config.routes.map((route) => JSON.stringify(route.topicPattern)).join(", ");
    const tried = patterns === "" ? "there are no routes" : `none matches, of ${patterns}`;
    return { lines: [topic, ["route", `${tried}: a row with this topic goes dead`]], targets: [] };
  }
  const lines: Lines = [
    topic,
    ["route", first.named],
    ...shadowed.map(({ named }) => ["shadowed", `${named} matches too, but ${first.path} comes first`] as const),
  ];
  const targets = first.targets.flatMap((target) => {
    const name = target.destination;
    const destination = config.destinations[name];
    if (destination === undefined) return [];
    const ownLines: Lines = [
      ["destination", `${name} (${destination.kind})`],
      ...expressionLines("when", target.when, `${target.keyPath}.when`),
      ...limitLines(destination, target, config.outbox),
      ...expressionLines("transform", target.transform, `${target.keyPath}.transform`),
      ...expressionLines("transform", destination.transform, `destinations.${name}.transform`),
      ...targetLines(destination, target, row),
    ];
    return [{ destination: name, lines: ownLines }];
  });
  return { lines, targets };
}

function expressionLines(label: string, block: TransformConfig | undefined, path: string): Lines {
  if (block === undefined) return [];
  const { timeoutMs, maxDepth, onError } = block;
  return [[label, `${path} (timeoutMs ${timeoutMs}, maxDepth ${maxDepth}, onError ${onError})`]];
}

/** The receiver of the message, as far as the configuration and the row determine it. */
function targetLines(destination: DestinationConfig, route: RouteTarget, row: ExplainedRow): Lines {
  const kind = destinationKindOf(destination);
  const keys = destination as unknown as Readonly<Record<string, string>>;
  const { address, routingKey } = addressingOf(destination);
  const { name, text } = kind.explain(destination);
  const lines: [string, string][] = [[name, maskUrls(text)]];
  if (kind.address !== null && address !== null) {
    const from = kind.address.from === null ? undefined : keys[kind.address.from];
    const origin = from === undefined ? `template ${JSON.stringify(keys[kind.address.template])}` : `column ${from}`;
    lines.push([kind.address.name, `${rendered((fields) => address.render(fields), row)}  (${origin})`]);
  }
  if (kind.routingKey !== null) {
    const path = `destinations.${route.destination}.${kind.routingKey.template}`;
    lines.push([kind.routingKey.name, keyText(routingKey, path, route, row)]);
  }
  return lines;
}

function keyText(own: RoutingKey | null, ownPath: string, route: RouteTarget, row: ExplainedRow): string {
  const template = route.routingKeyTemplate;
  const rule = {
    routingKey: template === undefined ? null : parseRoutingKeyTemplate(template),
    routingKeyMissing: route.routingKeyMissingFieldDefault,
  };
  const origin =
    template === undefined
      ? `${ownPath} ${JSON.stringify(own?.template.text)}`
      : `${route.keyPath}.routingKeyTemplate ${JSON.stringify(template)}`;
  return `${rendered((fields) => renderRoutingKey(own, rule, fields), row)}  (${origin})`;
}

/** What a template gives for the row, or why it gives nothing. */
function rendered(render: (fields: MessageFields) => string | null, row: ExplainedRow): string {
  let needsPayload = false;
  let needsHeaders = false;
  const { payload, ...columns } = row;
  const known = messageFields({ ...columns, payload: payload ?? "" });
  const fields: MessageFields = {
    ...columns,
    payloadText(names) {
      needsPayload ||= payload === null;
      return known.payloadText(names);
    },
    header() {
      needsHeaders = true;
      return undefined;
    },
  };
  let text: string;
  try {
    const value = render(fields);
    text = value === null ? "none" : value === "" ? "(empty)" : value;
  } catch (error) {
    text = `the publish fails: ${(error as Error).message}`;
  }
  if (needsHeaders) return "needs the headers of the row, which this command does not know";
  return needsPayload ? "needs the payload: give one with --payload" : text;
}

/** The limits of a destination in effect; a value that is not the destination's own has the key it comes from. */
function limitLines(destination: DestinationConfig, route: RouteTarget, outbox: Config["outbox"]): Lines {
  return [
    ["concurrency", concurrencyText(destination.concurrency, outbox.concurrency)],
    ["rate limit", rateText(destination.rateLimit)],
    ["retry", retryText(destination.retry, outbox.retryBaseDelayMs)],
    ["attempts", attemptsText(destination, route)],
    ["breaker", breakerText(destination.circuitBreaker)],
    ["exhausted", exhaustedText(route)],
  ];
}

function concurrencyText(own: number | undefined, ofProcess: number): string {
  const most = Math.min(own ?? ofProcess, ofProcess);
  const origin = own === undefined || own > ofProcess ? "  (outbox.concurrency)" : "";
  return `${most} in flight in one process${origin}`;
}

function rateText(limit: DestinationConfig["rateLimit"]): string {
  if (limit === undefined) return "none";
  const { perSecond, burst = Math.ceil(perSecond) } = limit;
  return `${perSecond} per second, burst ${burst}, for all replicas together`;
}

function retryText(retry: DestinationConfig["retry"], baseDelayMs: number): string {
  if (retry?.schedule !== undefined) {
    const waits = retry.schedule.map((ms) => `${ms} ms`).join(", ");
    return `after ${waits}, then the last wait again, jitter ${retry.jitter}`;
  }
  const { baseDelayMs: base, factor = 2, maxDelayMs = MAX_RETRY_DELAY_MS, jitter = 0.25 } = retry ?? {};
  const origin = base === undefined ? "  (outbox.retryBaseDelayMs)" : "";
  return `after ${base ?? baseDelayMs} ms, each further wait ${factor} times as long, at most ${maxDelayMs} ms, jitter ${jitter}${origin}`;
}

function attemptsText({ maxAttempts }: DestinationConfig, route: RouteTarget): string {
  const own = route.maxAttempts ?? maxAttempts;
  if (own === undefined) return "the row's max_attempts";
  const origin = route.maxAttempts === undefined ? "" : `  (${route.keyPath}.maxAttempts)`;
  return `${own} if the row's max_attempts is ${COLUMN_MAX_ATTEMPTS}, else the row's${origin}`;
}

function breakerText(breaker: DestinationConfig["circuitBreaker"]): string {
  if (breaker === undefined) return "none";
  const { failureRatio, minimumAttempts, windowMs, openMs, maxOpenMs } = breaker;
  return `opens at ${failureRatio} failed of at least ${minimumAttempts} in ${windowMs} ms; probes after ${openMs} to ${maxOpenMs} ms`;
}

function exhaustedText({ onExhausted, keyPath }: RouteTarget): string {
  if (onExhausted === "dead") return "the row is dead, later rows of its key are delivered";
  return `the row is parked, later rows of its key wait  (${keyPath}.onExhausted)`;
}
