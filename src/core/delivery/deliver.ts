import { ClaimLostError, errorText, PublishError, StoppingError, TransformError } from "../../model/errors.ts";
import {
  type AttemptRecord,
  type ClaimedRow,
  CONDITION,
  type DeliverableRow,
  type DestinationOf,
  EXPIRED,
  maxAttemptsInEffect,
  nowhere,
  type Outcome,
  reasonTooLarge,
} from "../../model/rows.ts";
import { sampledTraceId, traceFields } from "../../model/traceContext.ts";
import type { Destination, OutboundMessage } from "../../ports/destination.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log } from "../../ports/runtime.ts";
import type { TopicRouting } from "../../ports/store.ts";
import type { Clock, Random } from "../../time/clock.ts";
import { HEALTHY, NOT_ASKED, type ReceiverReport } from "../destinations/breaker.ts";
import type { Redact } from "../redaction/redact.ts";
import type { EventWriter } from "./cloudEvents.ts";
import type { Condition } from "./expansion.ts";
import { type RetryPolicy, verdictOf } from "./failure.ts";
import { chosen, compileDestinationOf, compileRoutes } from "./routing.ts";
import {
  type Address,
  compileOutboundHeaders,
  messageFields,
  type OutboundHeaders,
  type RouteRoutingKey,
  type RoutingKey,
  renderRoutingKey,
  type StaticHeaders,
} from "./template.ts";

/** One transform of the delivered body (spec, "Transform stages and variables"). */
export interface TransformStage {
  readonly onError: "Fail" | "Skip" | "Dead";
  /**
   * @param body JSON text: the row's payload, or what the stage before made of it
   * @returns the new body
   * @throws any error, exceeding a limit included; `onError` decides what becomes of the row. A PublishError when the
   *   transform could not run at all: then the delivery fails whatever `onError` is
   */
  run(body: string, row: DeliverableRow): Promise<string>;
}

/** One entry of `routes`, compiled. */
export interface DeliveryRoute extends RouteRoutingKey {
  readonly topicPattern: string;
  readonly destination: string;
  readonly transform: TransformStage | null;
  /** For a row whose attempts are exhausted. */
  readonly onExhausted: "dead" | "park";
  /** `maxAttempts` of an entry of a list; undefined leaves it to the destination. */
  readonly maxAttempts?: number | undefined;
  /** Of an entry of a list. */
  readonly condition?: Condition | null | undefined;
}

/** One entry of `destinations`, compiled, with the destination it describes. */
export interface DeliveryTarget {
  readonly kind: string;
  readonly destination: Destination;
  /** Static headers, and those rendered for each message. */
  readonly headers: StaticHeaders;
  /** Null for a kind without addresses (HTTP). */
  readonly address: Address | null;
  /** Null for a kind without routing keys (HTTP, NATS). */
  readonly routingKey: RoutingKey | null;
  readonly transform: TransformStage | null;
  /** Undefined if the destination sends messages unchanged. */
  readonly cloudEvents?: EventWriter | undefined;
  readonly retryPolicy: RetryPolicy;
  /** `maxAttempts` of the destination; undefined leaves it to the rows. */
  readonly maxAttempts: number | undefined;
}

interface DeliverySetup {
  /** One for each destination of a route. */
  readonly routes: readonly DeliveryRoute[];
  readonly routing: TopicRouting;
  readonly targets: ReadonlyMap<string, DeliveryTarget>;
  /** Masks secrets in every reason before it is logged or stored. */
  readonly redact: Redact;
  /** `outbox.history`: which outcomes get a record. */
  readonly history: "off" | "failures" | "all";
  /** The name of this replica, for the records. */
  readonly replica: string;
  readonly metrics: Metrics;
  readonly log: Log;
  readonly clock: Clock;
  readonly random: Random;
}

/** How a row ended, and what that shows about its receiver. */
export interface DeliveryResult {
  readonly outcome: Outcome;
  readonly report: ReceiverReport;
  /** What a failed attempt failed with. */
  readonly error?: PublishError | undefined;
}

export interface Delivery {
  readonly routing: TopicRouting;
  readonly destinationOf: DestinationOf;
  /**
   * Delivers one claimed row, whose `expiresInMs` counts from now. Never rejects: everything becomes its outcome.
   *
   * @param signal abort it with `StoppingError` or `ClaimLostError` to interrupt: the row is then released, not failed
   * @param isProbe unless the probe works, the row is released and its attempt not counted
   */
  deliver(row: ClaimedRow, signal: AbortSignal, isProbe?: boolean): Promise<DeliveryResult>;
}

/** How one attempt ended. `error` is what was thrown. */
type Attempt =
  | { readonly kind: "sent" }
  | { readonly kind: "interrupted"; readonly wasSent: boolean; readonly error: unknown }
  | { readonly kind: "failed"; readonly error: unknown }
  /** Dead without a counted attempt. */
  | { readonly kind: "refused"; readonly error: unknown };

interface PreparedRoute extends DeliveryRoute {
  readonly target: DeliveryTarget;
  readonly outboundHeaders: OutboundHeaders;
}

/** A transform with `onError: Dead` failed. */
class RefusedError extends Error {
  override readonly name = "RefusedError";
}

/**
 * Builds the delivery of claimed rows: route, transforms, address, headers, publish, outcome, with its metrics and one
 * log line per attempt.
 *
 * @throws Error when a route names a destination that is not among the targets, or holds a bad pattern
 */
export function createDelivery(setup: DeliverySetup): Delivery {
  const { clock, redact, log } = setup;
  const routes = compileRoutes(setup.routes.map((route) => prepareRoute(route, setup.targets)));
  const { routing } = setup;
  const routesOf = new Map([...setup.targets.keys()].map((name) => [name, routesTo(name, setup)]));
  return {
    routing,
    destinationOf: compileDestinationOf(routing, setup.targets),
    async deliver(row, signal, isProbe = false) {
      const startedAt = clock.monotonic();
      const routesOfRow = chosen(row, (destination) => routesOf.get(destination), routes);
      const route = row.topic === null ? undefined : routesOfRow?.match(row.topic);
      const attempt = await attemptOf(setup, row, route, signal);
      const report = reportOf(attempt, redact);
      const isSpared = isProbe && (report.receiver === "failed" || report.receiver === "unknown");
      const outcome: Outcome = isSpared ? { ...claimOf(row), kind: "release" } : outcomeOf(setup, row, route, attempt);
      const durationMs = clock.monotonic() - startedAt;
      count(setup, row, route, outcome);
      logAttempt(log, row, route, attempt, outcome, durationMs);
      const record = isKept(setup.history, outcome) ? recordOf(setup, row, route, attempt, durationMs) : undefined;
      const error = publishErrorOf(attempt);
      return { outcome: record === undefined ? outcome : { ...outcome, record }, report, error };
    },
  };
}

async function attemptOf(
  { metrics, clock }: DeliverySetup,
  row: ClaimedRow,
  route: PreparedRoute | undefined,
  signal: AbortSignal,
): Promise<Attempt> {
  if (row.expiresInMs !== null && row.expiresInMs <= 0) return { kind: "refused", error: new Error(EXPIRED) };
  if (!isDeliverable(row)) {
    return { kind: "refused", error: new Error(undeliverable(row)) };
  }
  if (route === undefined) return { kind: "refused", error: new Error(nowhere(row)) };
  const { target } = route;
  let publishedAt: number | undefined;
  try {
    signal.throwIfAborted();
    if (row.hasOpenCondition && route.condition && !(await holds(route.condition, row, signal)))
      return { kind: "refused", error: new Error(`${CONDITION}is false: not delivered`) };
    let body = row.payload;
    if (route.transform !== null) body = await transform("route", route.transform, body, row, signal, metrics);
    if (target.transform !== null) body = await transform("destination", target.transform, body, row, signal, metrics);
    const message = messageOf(route, row, body);
    signal.throwIfAborted();
    publishedAt = clock.monotonic();
    await target.destination.publish(message, signal);
    return { kind: "sent" };
  } catch (error) {
    if (isInterruption(error, signal)) return { kind: "interrupted", wasSent: publishedAt !== undefined, error };
    return { kind: error instanceof RefusedError ? "refused" : "failed", error };
  } finally {
    if (publishedAt !== undefined) {
      metrics.outboxPublishDuration(target.kind, (clock.monotonic() - publishedAt) / 1000);
    }
  }
}

function outcomeOf(
  { redact, random }: DeliverySetup,
  row: ClaimedRow,
  route: PreparedRoute | undefined,
  attempt: Attempt,
): Outcome {
  const claim = claimOf(row);
  // The spread last: first, it takes Node.js 20 a microsecond for each field behind it, and this is done for each message.
  if (attempt.kind === "sent") return { kind: "sent", ...claim };
  if (attempt.kind === "interrupted") return { ...claim, kind: "release" };
  const reason = redact(reasonOf(attempt.error));
  if (attempt.kind === "refused" || route === undefined) return { ...claim, kind: "dead", attempted: false, reason };
  const error = publishErrorOf(attempt);
  const maxAttempts = maxAttemptsInEffect(row.maxAttempts, route.maxAttempts ?? route.target.maxAttempts);
  if (error?.isPermanent || row.attempt + 1 >= maxAttempts) {
    if (route.onExhausted === "park") return { ...claim, kind: "park", reason };
    return { ...claim, kind: "dead", attempted: true, reason };
  }
  const delayMs = route.target.retryPolicy({ attempt: row.attempt, retryAfterMs: error?.retryAfterMs }, random);
  return { ...claim, kind: "retry", delayMs, reason };
}

function isKept(history: DeliverySetup["history"], { kind }: Outcome): boolean {
  if (kind === "release" || history === "off") return false;
  return kind !== "sent" || history === "all";
}

function recordOf(
  { replica }: DeliverySetup,
  row: ClaimedRow,
  route: PreparedRoute | undefined,
  attempt: Attempt,
  durationMs: number,
): AttemptRecord {
  const error = publishErrorOf(attempt);
  return {
    attempt: attempt.kind === "refused" ? null : row.attempt + 1,
    destination: route?.destination ?? null,
    replica,
    code: error?.code ?? null,
    status: error?.status ?? null,
    durationMs,
  };
}

function claimOf(row: ClaimedRow): Pick<Outcome, "id" | "claimToken"> {
  return { id: row.id, claimToken: row.claimToken };
}

function count(
  { metrics, clock }: DeliverySetup,
  row: ClaimedRow,
  route: PreparedRoute | undefined,
  outcome: Outcome,
): void {
  if (outcome.kind === "release") return;
  const status = outcome.kind === "retry" || outcome.kind === "park" ? "failed" : outcome.kind;
  metrics.outboxMessages(status, 1);
  if (route !== undefined) metrics.outboxDestinationMessage(route.destination, status);
  if (outcome.kind === "park" && route !== undefined) metrics.outboxParked(route.destination);
  if (status === "sent" && row.createdAt !== null) {
    const now = clock.now();
    const secondsSince = (time: number): number => Math.max(0, now - time) / 1000;
    metrics.deliveryLatency(secondsSince(row.createdAt.getTime()));
    if (route !== undefined) {
      metrics.messageDelivery(route.destination, secondsSince(receivedAt(row) ?? now), sampledTraceId(row.headers));
    }
  }
}

/**
 * When a message was received, in ms since 1970: the id of a relayed one says so (RFC 9562, section 5.7); of an
 * application, when it was inserted.
 */
export function receivedAt({ id, messageId = id, headers, createdAt }: ClaimedRow): number | undefined {
  if (headers["x-inbox-id"] !== messageId) return createdAt?.getTime();
  return Number.parseInt(messageId.slice(0, 8) + messageId.slice(9, 13), 16);
}

function reportOf(attempt: Attempt, redact: Redact): ReceiverReport {
  if (attempt.kind === "sent") return HEALTHY;
  const { error } = attempt;
  const reason = redact(reasonOf(error));
  if (attempt.kind === "interrupted")
    return attempt.wasSent ? { receiver: "unknown", reason, isInterrupted: true } : NOT_ASKED;
  if (attempt.kind === "refused") return { receiver: "unasked", reason };
  const receiver = verdictOf(error);
  const retryAfterMs = receiver === "failed" ? publishErrorOf(attempt)?.retryAfterMs : undefined;
  return { receiver, retryAfterMs, reason };
}

function isDeliverable(row: ClaimedRow): row is DeliverableRow {
  return row.topic !== null && row.payload !== null && (row.tooLarge ?? null) === null;
}

function undeliverable({ topic, tooLarge = null }: ClaimedRow): string {
  if (topic !== null && tooLarge !== null) return reasonTooLarge(tooLarge);
  return `the column of the ${topic === null ? "topic" : "payload"} is NULL: there is nothing to deliver`;
}

/** The routes of rows with a destination: its own, and one without a transform for other topics. */
function routesTo(destination: string, { routes, targets }: DeliverySetup) {
  const own = routes.filter((route) => route.destination === destination);
  const other = {
    topicPattern: "**",
    destination,
    transform: null,
    onExhausted: "dead",
    routingKey: null,
    routingKeyMissing: "",
  } as const;
  return compileRoutes([...own, other].map((route) => prepareRoute(route, targets)));
}

function prepareRoute(route: DeliveryRoute, targets: ReadonlyMap<string, DeliveryTarget>): PreparedRoute {
  const target = targets.get(route.destination);
  if (target === undefined) {
    const known = [...targets.keys()].join(", ");
    throw new Error(
      `the route ${route.topicPattern} names the unknown destination ${route.destination}; known: ${known}`,
    );
  }
  return { ...route, target, outboundHeaders: compileOutboundHeaders(target.headers) };
}

async function transform(
  name: "route" | "destination",
  stage: TransformStage,
  body: string,
  row: DeliverableRow,
  signal: AbortSignal,
  metrics: Metrics,
): Promise<string> {
  try {
    return await stage.run(body, row);
  } catch (error) {
    // A stop that ends the evaluator is not a failure: with `Dead` the row would be lost.
    signal.throwIfAborted();
    if (error instanceof PublishError) throw error;
    metrics.transformFailure(stage.onError);
    if (stage.onError === "Skip") return body;
    const message = `the ${name} transform failed: ${reasonOf(error)}`;
    throw stage.onError === "Dead" ? new RefusedError(message) : new PublishError("transform_failed", message);
  }
}

/** The condition of a delivery that could not be evaluated when its message was expanded. */
async function holds(condition: Condition, row: DeliverableRow, signal: AbortSignal): Promise<boolean> {
  try {
    return await condition.holds(row.payload, row);
  } catch (error) {
    signal.throwIfAborted();
    // It stays open: the reason says so.
    const code = error instanceof PublishError ? error.code : "transform_failed";
    throw new PublishError(code, `${CONDITION}failed: ${reasonOf(error)}`);
  }
}

function messageOf(route: PreparedRoute, row: DeliverableRow, body: string): OutboundMessage {
  const { target } = route;
  const fields = messageFields(row);
  const id = row.messageId ?? row.id;
  const headers = route.outboundHeaders(row.headers, id, fields, row.messageId && row.id);
  return {
    id,
    deliveryId: row.id,
    topic: row.topic,
    key: row.key,
    ...(target.cloudEvents?.(row, fields, body, headers) ?? { body, headers }),
    address: target.address?.render(fields) ?? null,
    routingKey: renderRoutingKey(target.routingKey, route, fields),
  };
}

/** Only the signal's own reason counts: a refusal that came just before the abort is a failed attempt. */
function isInterruption(error: unknown, signal: AbortSignal): boolean {
  return (
    signal.aborted && error === signal.reason && (error instanceof StoppingError || error instanceof ClaimLostError)
  );
}

const LINE = "delivery attempted";
const PARKED_LINE =
  "parked: the row stays first of its key, whose later rows wait until it is retried (svc parked retry) or discarded (svc parked discard)";

/** One line per attempt with every decision as a field, without payload and headers. */
function logAttempt(
  log: Log,
  row: ClaimedRow,
  route: PreparedRoute | undefined,
  attempt: Attempt,
  outcome: Outcome,
  durationMs: number,
): void {
  const fields = {
    id: row.id,
    messageId: row.messageId,
    topic: row.topic ?? undefined,
    key: row.key ?? undefined,
    destination: route?.destination,
    destinationKind: route?.target.kind,
    attempt: row.attempt,
    maxAttempts: maxAttemptsInEffect(row.maxAttempts, route?.maxAttempts ?? route?.target.maxAttempts),
    outcome: outcome.kind,
    durationMs: Math.round(durationMs * 10) / 10,
    ...traceFields(row.headers),
  };
  // A line per message costs a quarter of an HTTP publish (8 of 33 µs), so only at level info.
  if (outcome.kind === "sent") log.info(fields, LINE);
  else if (outcome.kind === "release")
    log.info({ ...fields, reason: "error" in attempt ? reasonOf(attempt.error) : undefined }, LINE);
  else {
    const failed = { ...fields, code: publishErrorOf(attempt)?.code, reason: outcome.reason };
    if (outcome.kind === "retry") log.warn({ ...failed, retryDelayMs: outcome.delayMs }, LINE);
    else log.error(failed, outcome.kind === "park" ? PARKED_LINE : LINE);
  }
}

function publishErrorOf(attempt: Attempt): PublishError | undefined {
  return "error" in attempt && attempt.error instanceof PublishError ? attempt.error : undefined;
}

/** The text of anything thrown, even of an object without a prototype. */
function reasonOf(error: unknown): string {
  try {
    // Their codes are for programs; the message has the same in words.
    if (!(error instanceof PublishError || error instanceof TransformError)) return errorText(error);
    return error.cause === undefined ? error.message : `${error.message} (${errorText(error.cause)})`;
  } catch {
    return "an error without a text was thrown";
  }
}
