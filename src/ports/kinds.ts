import type { CloudEventsBinding } from "../model/cloudEvents.ts";
import type { ConfigProblem } from "../model/errors.ts";
import type { Infer, SchemaNode } from "../model/schema.ts";
import type { Clock, Random } from "../time/clock.ts";
import type { Destination } from "./destination.ts";
import type { Metrics } from "./metrics.ts";
import type { Log, SecretMasker } from "./runtime.ts";
import type { Intake, Source } from "./source.ts";

/**
 * The contract of a kind of destination or source: one object next to its adapter. The configuration's schema, its
 * checks, `svc explain`, the chart's schema, the reference page and the metric labels derive from it.
 */

/** How a rule reports; keys are relative to the entry. */
export interface Report {
  error(key: string, message: string): void;
  warning(key: string, message: string): void;
}

/** Runs a rule over several keys of an entry when none of them has a problem of its own. */
export type When = (keys: readonly string[], rule: (report: Report) => void) => void;

/** What every adapter gets from its process. `log` names the entry in every line. */
export interface AdapterTools {
  readonly log: Log;
  readonly clock: Clock;
  readonly random: Random;
}

export interface DestinationTools extends AdapterTools {
  readonly metrics: Metrics;
  /** Masks secrets in answers of receivers, including the destination's own. */
  readonly secrets: SecretMasker;
  /** Most deliveries at a time (`outbox.concurrency`). */
  readonly concurrency: number;
  readonly http: { readonly blockPrivateAddresses: boolean; readonly maxErrorBodyBytes: number };
}

/** Row columns that may hold an address (spec: `exchangeFrom`, `topicFrom`, `subjectFrom`). */
export const ADDRESS_COLUMNS = ["aggregate_type", "topic", "key"] as const;
export type AddressColumn = (typeof ADDRESS_COLUMNS)[number];

type KeyOf<S> = keyof Infer<S> & string;

export interface DestinationKind<S extends SchemaNode> {
  readonly schema: S;
  /** Rules over several keys. */
  check(entry: Infer<S> & { readonly headers: Readonly<Record<string, string>> }, when: When): void;
  /**
   * What is addressed at the receiver, the key of its template, and the key of the overriding column; or null. `path`:
   * in the path of a URL, so that values are percent-encoded, and it is rendered only if the template has placeholders.
   */
  readonly address:
    | { readonly name: string; readonly template: KeyOf<S>; readonly from: KeyOf<S> }
    | { readonly name: "path"; readonly template: KeyOf<S>; readonly from: null }
    | null;
  /** Whether the static headers are address templates. */
  readonly hasHeaderTemplates?: true;
  readonly cloudEvents: CloudEventsBinding;
  /**
   * What the key of a message is called, and the key of its template; null for a kind without. `fields`: what the
   * template may use, every field of the row or only `key` and `topic`. `emptyMeansNone`: an empty result sends no key.
   */
  readonly routingKey: {
    readonly name: string;
    readonly template: KeyOf<S>;
    readonly fields: "all" | "columns";
    readonly emptyMeansNone: boolean;
  } | null;
  /** The receiver of deliveries, for a person; passwords in it are masked by the caller. */
  explain(config: Infer<S>): { readonly name: string; readonly text: string };
  /** Checks at the start that need more than the configuration's text. @param path key path of the destination */
  checkAtStart?(path: string, config: Infer<S>, http: DestinationTools["http"]): Promise<readonly ConfigProblem[]>;
  create(config: Infer<S>, tools: DestinationTools): Promise<Destination>;
}

/** The place of an attribute in a message of a broker or of a sender of webhooks. */
export type AttributePlace =
  | { readonly header: string }
  /** `text` names the property for the sender. */
  | { readonly property: "messageId" | "recordKey" | "streamPlace"; readonly text: string }
  /** A definite JSONPath in the body. */
  | { readonly path: string }
  /** These members of every item of a body that is a list, together. */
  | { readonly each: readonly string[] }
  /** Several values with colons between; none unless all are there. */
  | { readonly joined: readonly AttributePlace[] }
  | { readonly digest: "body" };

export interface AttributePlaces {
  readonly idempotencyKey: readonly AttributePlace[];
  readonly aggregateId: readonly AttributePlace[];
  readonly eventType?: readonly AttributePlace[];
}

export interface SourceTools extends AdapterTools {
  /** The source's name. The log has it in every line already. */
  readonly name: string;
  readonly intake: Intake;
  /** Ms before the source offers a refused message again; {@link REFUSED_RETRY_MS} by default. */
  readonly refusedRetryMs?: number | undefined;
}

export const REFUSED_RETRY_MS = 10_000;

/** A kind of source that consumes from a broker; HTTP sources are routes of the server. */
export interface SourceKind<S extends SchemaNode> {
  readonly schema: S;
  /** Rules over several keys. */
  check(entry: Infer<S>, when: When): void;
  /** The places of an attribute, in order, after the places that the configuration names (spec, "sources.<name>"). */
  readonly attributes: AttributePlaces;
  /** What it reads from, as a trace names it: a queue, topic or stream; undefined if there are several. */
  readsFrom?(config: Infer<S>): string | undefined;
  create(config: Infer<S>, tools: SourceTools): Promise<Source>;
}

/** The schema of some kind: its entries are objects with keys of any type. */
export type AnySchema = { readonly type: "object"; readonly additionalProperties: object };

export const destinationKind = <const S extends SchemaNode>(kind: DestinationKind<S>): DestinationKind<S> => kind;
export const sourceKind = <const S extends SchemaNode>(kind: SourceKind<S>): SourceKind<S> => kind;
