import type { ClaimedRow, Headers } from "../../model/rows.ts";
import * as names from "../../model/spans.ts";
import {
  givenContext,
  isSampled,
  storedContext,
  type TraceContext,
  withContext,
  without,
} from "../../model/traceContext.ts";
import type { Destination } from "../../ports/destination.ts";
import type { Intake } from "../../ports/source.ts";
import type { Span, Tracer } from "../../ports/tracer.ts";
import type { Clock } from "../../time/clock.ts";
import { type Delivery, receivedAt, type TransformStage } from "../delivery/deliver.ts";
import type { Receiver, SourceStage } from "../receipt/receive.ts";

/**
 * Spans around the parts of a process. The context of a message travels with it, through the tables in its headers: the
 * span of the receipt becomes the `traceparent` of the outbox row, and each attempt sends its own.
 */

export interface TracedSource {
  readonly name: string;
  /** `tracing.trust`: whether a sender's span is the parent of the receipt and decides about its sampling. */
  readonly isTrusted: boolean;
  /** Undefined for HTTP. */
  readonly broker: { readonly kind: string; readonly from: string | undefined } | undefined;
}

interface TracingSettings {
  /** How a delivery belongs to the trace of its message. */
  readonly deliveries: "parent" | "link" | "new";
  /** Older messages get a link. */
  readonly parentMaxAgeMs: number;
  /** The headers of a trace that are sent. */
  readonly propagate: readonly string[];
}

/** What the composition root puts around the parts. */
export interface Decorators {
  receiver(receiver: Receiver, source: TracedSource): Receiver;
  intake(intake: Intake, source: TracedSource): Intake;
  sourceStage(stage: SourceStage): SourceStage;
  deliveryStage(stage: TransformStage, of: "route" | "destination"): TransformStage;
  delivery(delivery: Delivery, destinations: ReadonlyMap<string, names.NamedDestination>): Delivery;
  destination(destination: Destination): Destination;
}

export function tracedParts(tracer: Tracer, settings: TracingSettings, clock: Pick<Clock, "now">): Decorators {
  /** Begins the span of a receipt. */
  const receiptsOf = (source: TracedSource) => {
    const name = names.SPANS.received(source.name);
    const kind = source.broker === undefined ? "server" : "consumer";
    const attributes = names.receiptAttributes(source.name, source.broker);
    return (headers: Headers, further?: names.SpanAttributes): Span => {
      const given = givenContext(headers);
      return tracer.begin(name, {
        kind,
        parent: source.isTrusted ? given : undefined,
        links: given === undefined || source.isTrusted ? undefined : [given],
        attributes: further === undefined ? attributes : { ...attributes, ...further },
      });
    };
  };
  const relationOf = (row: ClaimedRow, stored: TraceContext | undefined) => {
    if (stored === undefined || settings.deliveries === "new") return {};
    const isOld = clock.now() - (receivedAt(row) ?? clock.now()) > settings.parentMaxAgeMs;
    return settings.deliveries === "link" || isOld ? { links: [stored] } : { parent: stored };
  };
  return {
    receiver(receiver, source) {
      const begin = receiptsOf(source);
      return {
        ...receiver,
        async accept(message) {
          const span = begin(message.headers);
          const receipt = await receiver.accept(withSpan(message, span));
          endReceipt(span, receipt);
          return receipt;
        },
        async acceptRequest(messages, isAtomic) {
          const spans = messages.map(({ headers }) => begin(headers));
          const given = messages.map((message, n) => withSpan(message, spans[n]));
          const receipts = await receiver.acceptRequest(given, isAtomic);
          for (const [n, receipt] of receipts.entries()) endReceipt(spans[n], receipt);
          return receipts;
        },
      };
    },

    intake(intake, source) {
      const begin = receiptsOf(source);
      return {
        async take(messages, signal) {
          const spans = messages.map(({ headers, origin }) => begin(headers, names.recordAttributes(origin)));
          const given = messages.map((message, n) => withSpan(message, spans[n]));
          let ended = "interrupted";
          try {
            const refused = new Set(await intake.take(given, signal));
            ended = "taken";
            return messages.filter((_, n) => refused.has(given[n] as (typeof given)[number]));
          } finally {
            const error = ended === "taken" ? undefined : ended;
            for (const span of spans) span.end({ attributes: names.receivedAttributes(ended), error });
          }
        },
      };
    },

    sourceStage: (stage) => async (body, context, refusable) => {
      const span = tracer.begin(names.SPANS.transform, {
        kind: "internal",
        parent: context.trace,
        attributes: names.transformAttributes("source"),
      });
      const outcome = await stage(body, context, refusable);
      const error = outcome.kind === "rejected" || outcome.kind === "unavailable" ? outcome.kind : undefined;
      span.end({ attributes: names.receivedAttributes(outcome.kind), error });
      return outcome;
    },

    deliveryStage: (stage, of) => ({
      ...stage,
      async run(body, row) {
        const span = tracer.begin(names.SPANS.transform, {
          kind: "internal",
          parent: givenContext(row.headers),
          attributes: names.transformAttributes(of),
        });
        let error: string | undefined = "transform_failed";
        try {
          const transformed = await stage.run(body, row);
          error = undefined;
          return transformed;
        } finally {
          span.end({ error });
        }
      },
    }),

    delivery: (delivery, destinations) => ({
      ...delivery,
      async deliver(row, signal, isProbe) {
        const stored = storedContext(row.headers);
        // What the receipt or the application did not sample stays so, and is most of the messages.
        if (stored !== undefined && !isSampled(stored) && settings.deliveries !== "new") {
          return await delivery.deliver(row, signal, isProbe);
        }
        const destination = destinations.get(delivery.destinationOf(row) ?? "");
        const span = tracer.begin(names.SPANS.sent(destination?.name), {
          kind: destination === undefined || destination.kind === "http" ? "client" : "producer",
          ...relationOf(row, stored),
          attributes: names.attemptAttributes(destination, { id: row.messageId ?? row.id, attempt: row.attempt + 1 }),
        });
        const sent = { ...row, headers: withContext(row.headers, span.context) };
        const result = await delivery.deliver(sent, signal, isProbe);
        const { outcome, report, error } = result;
        const isFailed = outcome.kind !== "sent" && outcome.kind !== "release";
        const attributes = names.attemptedAttributes(outcome.kind, report.receiver, error?.status);
        span.end({ attributes, error: isFailed ? (error?.code ?? outcome.kind) : undefined });
        return { ...result, outcome: { ...outcome, trace: span.context.traceparent } };
      },
    }),

    destination(destination) {
      const stripped = ["traceparent", "tracestate", "baggage"].filter((name) => !settings.propagate.includes(name));
      if (stripped.length === 0) return destination;
      return {
        publish: (message, signal) =>
          destination.publish({ ...message, headers: without(message.headers, stripped) }, signal),
        close: () => destination.close(),
      };
    },
  };
}

const withSpan = <M extends { readonly trace?: TraceContext | undefined }>(message: M, span: Span | undefined): M => ({
  ...message,
  trace: span?.context,
});

function endReceipt(span: Span | undefined, receipt: Awaited<ReturnType<Receiver["accept"]>>): void {
  const isError = receipt.kind === "unavailable" || receipt.kind === "busy";
  const id = receipt.kind === "stored" ? receipt.id : undefined;
  span?.end({ attributes: names.receivedAttributes(receipt.kind, id), error: isError ? receipt.kind : undefined });
}
