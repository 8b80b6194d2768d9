import { randomUUID } from "node:crypto";
import { targetsOf } from "../config/routes.ts";
import type { Config, SourceConfig, TransformConfig } from "../config/types.ts";
import { findAttributes, usableAttributes } from "../core/receipt/attributes.ts";
import { readEvent } from "../core/receipt/cloudEvents.ts";
import { createExpressions } from "../core/receipt/expressions.ts";
import { JsonDocument } from "../core/receipt/jsonDocument.ts";
import { truthOf } from "../core/transform/transform.ts";
import { headersNotStored, receivedHeaders } from "../http/inbox.ts";
import { DEFAULT_LIMITS, type Evaluation, type Evaluator } from "../ports/evaluator.ts";
import { attributePlanOf } from "../setup/sources.ts";

/** What `svc transform test` gives an expression to work on. */
export interface TrialInput {
  /** JSON text. */
  readonly payload: string;
  readonly topic?: string | undefined;
  readonly source?: string | undefined;
  /** Name and value of each. */
  readonly header?: readonly (readonly [string, string])[] | undefined;
  readonly attempt?: number | undefined;
  /** In place of the transform's own limit. */
  readonly timeoutMs?: number | undefined;
}

interface TrialTools {
  readonly evaluator: Pick<Evaluator, "evaluate">;
  /** Is given the configuration's key of an expression that failed, and why. */
  readonly onFailure: (key: string, code: string) => void;
}

export interface Trial {
  readonly evaluation: Evaluation;
  /** What the configured transform does when its expression fails; null for an expression that is not configured. */
  readonly onError: TransformConfig["onError"] | null;
  /** Whether it is a condition (`when`). */
  readonly isCondition?: boolean;
}

/** An option does not fit the configuration; the message names it. */
export class TrialError extends Error {
  override readonly name = "TrialError";
}

const DEFAULT_TOPIC = "test.topic";

/** An expression that is not configured, with every variable for which there is a value. */
export function trialOfExpression(expression: string, input: TrialInput, now: Date): Trial {
  const { source, header } = input;
  const bindings = {
    ...rowBindings(input, now),
    ...(source === undefined ? {} : { source }),
    ...(header === undefined ? {} : { headers: receivedHeaders(header.flat(), () => false) }),
  };
  return { evaluation: evaluationOf({ expression, ...DEFAULT_LIMITS }, input, bindings), onError: null };
}

/**
 * A configured transform, with its limits and the variables of its stage (spec, "Transform stages and variables").
 *
 * @param keyPath such as `destinations.orders`, `routes[0]`, `routes[0].destinations[1].when` or `sources.github`
 * @throws TrialError when there is no such transform, or an option sets a variable that the stage does not have or
 *   takes from elsewhere; Error when the source refuses the payload before its transform, or one of its expressions
 *   cannot be evaluated
 */
export async function trialOfConfigured(
  keyPath: string,
  config: Config,
  input: TrialInput,
  now: Date,
  tools: TrialTools,
): Promise<Trial> {
  const { path, transform, source, isCondition = false } = findTransform(keyPath, config);
  const { payload, bindings } =
    source === undefined
      ? { payload: input.payload, bindings: deliveryBindings(path, input, now, isCondition) }
      : await receivedBySource(source.name, { ...source, ...config.inbox }, input, now, tools);
  const expression = isCondition ? truthOf(transform.expression) : transform.expression;
  const evaluation = evaluationOf({ ...transform, expression }, { ...input, payload }, bindings);
  return { evaluation, onError: transform.onError, isCondition };
}

function evaluationOf(
  limits: Pick<TransformConfig, "expression" | "timeoutMs" | "maxDepth">,
  { payload, timeoutMs }: TrialInput,
  bindings: Evaluation["bindings"],
): Evaluation {
  const { expression, maxDepth } = limits;
  return { lane: "trial", expression, input: payload, bindings, timeoutMs: timeoutMs ?? limits.timeoutMs, maxDepth };
}

interface Stage {
  readonly path: string;
  readonly transform: TransformConfig | undefined;
  /** Whether its result decides about a delivery. */
  readonly isCondition?: boolean;
  /** Only of the transform of a source. */
  readonly source?: { readonly name: string; readonly settings: SourceConfig };
}

function findTransform(keyPath: string, { sources, destinations, routes }: Config) {
  const stages: readonly Stage[] = [
    ...Object.entries(sources).map(([name, settings]) => ({
      path: `sources.${name}`,
      transform: settings.transform,
      source: { name, settings },
    })),
    ...routes
      .flatMap(targetsOf)
      .flatMap(({ keyPath, transform, when }) => [
        { path: keyPath, transform },
        ...(when === undefined ? [] : [{ path: `${keyPath}.when`, transform: when, isCondition: true }]),
      ]),
    ...Object.entries(destinations).map(([name, { transform }]) => ({ path: `destinations.${name}`, transform })),
  ];
  const stage = stages.find(({ path }) => keyPath === path || keyPath === `${path}.transform`);
  if (stage?.transform !== undefined) return { ...stage, transform: stage.transform };
  const known = stages.flatMap(({ path, transform }) => (transform === undefined ? [] : [path])).join(", ");
  const what = stage === undefined ? `there is no ${keyPath}` : `${stage.path} has no transform`;
  throw new TrialError(`--of: ${what}; ${known === "" ? "no transform is configured" : `transforms have ${known}`}`);
}

function rowBindings({ topic, attempt }: TrialInput, now: Date) {
  return {
    messageId: randomUUID(),
    topic: topic ?? DEFAULT_TOPIC,
    attempt: attempt ?? 0,
    timestamp: now.toISOString(),
  };
}

function deliveryBindings(path: string, input: TrialInput, now: Date, isCondition: boolean): Evaluation["bindings"] {
  const unbound = (option: string, variable: string, owners: string) =>
    new TrialError(`${option}: ${variable} is not bound in ${path}; only ${owners} has it`);
  if (input.source !== undefined) throw unbound("--source", "$source", "the transform of a source");
  if (isCondition)
    return { ...rowBindings(input, now), key: null, headers: receivedHeaders(input.header?.flat() ?? [], () => false) };
  if (input.header !== undefined) throw unbound("--header", "$headers", "a condition or the transform of a source");
  return rowBindings(input, now);
}

async function receivedBySource(
  name: string,
  { settings, credentialHeaders }: { readonly settings: SourceConfig; readonly credentialHeaders: readonly string[] },
  input: TrialInput,
  now: Date,
  tools: TrialTools,
): Promise<{ readonly payload: string; readonly bindings: Evaluation["bindings"] }> {
  const given = (option: string, where: string) => new TrialError(`${option}: sources.${name} takes it from ${where}`);
  if (input.topic !== undefined) throw given("--topic", "the event type in the payload or a header");
  if (input.source !== undefined) throw given("--source", "its own name");
  if (input.attempt !== undefined) throw given("--attempt", "the receipt: it is always 0 there");
  const omits = settings.kind === "http" ? headersNotStored(settings.auth, credentialHeaders) : () => false;
  const message = {
    body: Buffer.from(input.payload, "utf8"),
    headers: receivedHeaders(input.header?.flat() ?? [], omits),
  };
  const event = settings.cloudEvents === true ? readEvent(message) : ({ kind: "event", ...message } as const);
  if (event.kind === "failed") throw refused(name, event.reason);
  const { body, headers } = event;
  const payload = body.toString("utf8");
  const places = findAttributes(attributePlanOf(settings), { body, document: documentOf(name, payload), headers });
  const expressions = createExpressions({ source: name, settings, ...tools });
  const computed = await expressions?.({ text: payload, headers });
  if (computed?.kind === "unavailable")
    throw new Error(`sources.${name}: no expression could be run: ${computed.reason}`);
  const extraction = usableAttributes({ ...places, ...computed?.values }, places.noKeyReason);
  if (extraction.kind === "failed") throw refused(name, extraction.reason);
  const { idempotencyKey, eventType } = extraction.attributes;
  const bindings = {
    ...rowBindings({ ...input, topic: eventType ?? "" }, now),
    source: name,
    headers,
    idempotencyKey,
    eventType,
  };
  return { payload, bindings };
}

function documentOf(source: string, payload: string): JsonDocument {
  try {
    return new JsonDocument(payload);
  } catch {
    throw refused(source, "it is not JSON");
  }
}

function refused(source: string, reason: string): Error {
  return new Error(`sources.${source} refuses the payload before its transform: ${reason}`);
}
