import type { Command } from "commander";
import { addressingOf } from "../../roles/destinations.ts";
import { destinationKindOf } from "../adapters/kinds.ts";
import { loadConfig } from "../config/load.ts";
import type { Config, DestinationConfig, RouteConfig, TransformConfig } from "../config/types.ts";
import { COLUMN_MAX_ATTEMPTS, MAX_RETRY_DELAY_MS } from "../core/delivery/failure.ts";
import {
  type MessageFields,
  messageFields,
  parseRoutingKeyTemplate,
  type RoutingKey,
  renderRoutingKey,
} from "../core/delivery/template.ts";
import { maskUrls } from "../model/secret.ts";
import { escapeControls } from "../model/text.ts";
import { compileTopicPattern } from "../model/topicPattern.ts";
import { destinationState } from "./destinations.ts";
import { type CommandIo, FILE_OPTION, readInput } from "./io.ts";

interface ExplainOptions {
  readonly config?: string;
  readonly key?: string;
  readonly aggregateType?: string;
  readonly payload?: string;
  readonly state?: boolean;
}

const EXIT_NOT_DELIVERED = 1;

/** Adds `explain topic`. @param program the command to add it to; a `--config` option of its own counts too */
export function addExplainCommand(program: Command, io: CommandIo): void {
  const explain = program.command("explain").description("show what the configuration does with a message");
  explain.addHelpText("after", EXAMPLES);
  explain
    .command("topic")
    .description(
      "show where a row with this topic goes: route, destination with its limits, transforms, address and key",
    )
    .argument("<name>", "topic of the outbox row")
    .option(...FILE_OPTION)
    .option("--key <key>", "the row's key (default: none)")
    .option("--aggregate-type <type>", "the row's aggregate type (default: none)")
    .option(
      "--payload <file>",
      "file with the row's payload, for templates that take a field of it; - is standard input",
    )
    .option("--state", "show the state of the destination, from the database")
    .addHelpText("after", EXAMPLES)
    .action(async (name: string, _options: ExplainOptions, command: Command) => {
      const options = command.optsWithGlobals<ExplainOptions>();
      const { config } = loadConfig({ env: io.env, file: options.config, readFile: io.readFile });
      const { destination, lines } = explainTopic(config, {
        topic: name,
        key: options.key ?? null,
        aggregateType: options.aggregateType ?? null,
        payload: options.payload === undefined ? null : await readInput(command, "--payload", options.payload, io),
      });
      const showsState = options.state === true && destination !== undefined;
      const state = showsState ? [line("state", await destinationState(options.config, destination, io))] : [];
      const width = Math.max(...lines.map(({ label }) => label.length));
      for (const { label, text } of [...lines, ...state])
        io.stdout.write(`${label.padEnd(width)}  ${escapeControls(text)}\n`);
      if (destination === undefined) io.setExitCode(EXIT_NOT_DELIVERED);
    });
}

const EXAMPLES = `
Only --state needs the database. Exit code 1 when no route matches: such a row goes dead.

Examples:
  svc explain topic order.created --config svc.yml
  svc explain topic order.created --key c-1 --payload order.json    with what the address templates take
  svc explain topic order.created --state                           whether it is paused, what waits`;

/** The outbox row to explain; it need not exist. */
interface ExplainedRow {
  readonly topic: string;
  readonly key: string | null;
  readonly aggregateType: string | null;
  /** The stored payload; null when it is not known. */
  readonly payload: string | null;
}

interface TopicExplanation {
  /** Where it goes; undefined when no route matches: such a row goes dead. */
  readonly destination: string | undefined;
  readonly lines: readonly ExplainedLine[];
}

/**
 * What the poller would do with a row: route, destination with its limits, transforms, address and key, in its order.
 */
function explainTopic(config: Pick<Config, "routes" | "destinations" | "outbox">, row: ExplainedRow): TopicExplanation {
  const topic = line("topic", row.topic);
  const matching = config.routes.flatMap((route, index) =>
    compileTopicPattern(route.topicPattern)(row.topic) ? [{ route, index, path: `routes[${index}]` }] : [],
  );
  const [first, ...shadowed] = matching;
  const destination = first && config.destinations[first.route.destination];
  if (first === undefined || destination === undefined) {
    const patterns = config.routes.map((route) => JSON.stringify(route.topicPattern)).join(", ");
    const tried = patterns === "" ? "there are no routes" : `none matches, of ${patterns}`;
    return { destination: undefined, lines: [topic, line("route", `${tried}: a row with this topic goes dead`)] };
  }
  const name = first.route.destination;
  return {
    destination: name,
    lines: [
      topic,
      line("route", named(first)),
      ...shadowed.map((other) => line("shadowed", `${named(other)} matches too, but ${first.path} comes first`)),
      line("destination", `${name} (${destination.kind})`),
      ...limitLines(destination, first, config.outbox),
      ...transformLines(first.route.transform, `${first.path}.transform`),
      ...transformLines(destination.transform, `destinations.${name}.transform`),
      ...targetLines(destination, first, row),
    ],
  };
}

interface MatchingRoute {
  readonly route: RouteConfig;
  readonly index: number;
  /** Its key path. */
  readonly path: string;
}

function named({ route, path }: MatchingRoute): string {
  return `${path} ${JSON.stringify(route.topicPattern)} to ${route.destination}`;
}

function transformLines(transform: TransformConfig | undefined, path: string): ExplainedLine[] {
  if (transform === undefined) return [];
  const { timeoutMs, maxDepth, onError } = transform;
  return [line("transform", `${path} (timeoutMs ${timeoutMs}, maxDepth ${maxDepth}, onError ${onError})`)];
}

/** Where the message goes, as far as the configuration and the row tell. */
function targetLines(destination: DestinationConfig, route: MatchingRoute, row: ExplainedRow): ExplainedLine[] {
  const kind = destinationKindOf(destination);
  const keys = destination as unknown as Readonly<Record<string, string>>;
  const { address, routingKey } = addressingOf(destination);
  const { name, text } = kind.explain(destination);
  const lines = [line(name, maskUrls(text))];
  if (kind.address !== null && address !== null) {
    const from = kind.address.from === null ? undefined : keys[kind.address.from];
    const origin = from === undefined ? `template ${JSON.stringify(keys[kind.address.template])}` : `column ${from}`;
    lines.push(line(kind.address.name, `${rendered((fields) => address.render(fields), row)}  (${origin})`));
  }
  if (kind.routingKey !== null) {
    const path = `destinations.${route.route.destination}.${kind.routingKey.template}`;
    lines.push(keyLine(kind.routingKey.name, routingKey, path, route, row));
  }
  return lines;
}

function keyLine(
  label: string,
  own: RoutingKey | null,
  ownPath: string,
  { route, path }: MatchingRoute,
  row: ExplainedRow,
): ExplainedLine {
  const template = route.routingKeyTemplate;
  const rule = {
    routingKey: template === undefined ? null : parseRoutingKeyTemplate(template),
    routingKeyMissing: route.routingKeyMissingFieldDefault,
  };
  const origin =
    template === undefined
      ? `${ownPath} ${JSON.stringify(own?.template.text)}`
      : `${path}.routingKeyTemplate ${JSON.stringify(template)}`;
  return line(label, `${rendered((fields) => renderRoutingKey(own, rule, fields), row)}  (${origin})`);
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
function limitLines(
  destination: DestinationConfig,
  route: MatchingRoute,
  outbox: Config["outbox"],
): readonly ExplainedLine[] {
  return [
    line("concurrency", concurrencyText(destination.concurrency, outbox.concurrency)),
    line("rate limit", rateText(destination.rateLimit)),
    line("retry", retryText(destination.retry, outbox.retryBaseDelayMs)),
    line("attempts", attemptsText(destination.maxAttempts)),
    line("breaker", breakerText(destination.circuitBreaker)),
    line("exhausted", exhaustedText(route)),
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

function attemptsText(own: number | undefined): string {
  if (own === undefined) return "the row's max_attempts";
  return `${own} where the row's max_attempts is ${COLUMN_MAX_ATTEMPTS}, else the row's`;
}

function breakerText(breaker: DestinationConfig["circuitBreaker"]): string {
  if (breaker === undefined) return "none";
  const { failureRatio, minimumAttempts, windowMs, openMs, maxOpenMs } = breaker;
  return `opens at ${failureRatio} failed of at least ${minimumAttempts} in ${windowMs} ms; probes after ${openMs} to ${maxOpenMs} ms`;
}

function exhaustedText({ route, path }: MatchingRoute): string {
  if (route.onExhausted === "dead") return "the row is dead, later ones of its key go on";
  return `the row is parked, later ones of its key wait  (${path}.onExhausted)`;
}

interface ExplainedLine {
  readonly label: string;
  readonly text: string;
}

const line = (label: string, text: string): ExplainedLine => ({ label, text });
