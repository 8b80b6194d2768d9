import type { AnySchema, DestinationKind, SourceKind } from "../ports/kinds.ts";
import { httpDestination } from "./destinations/http/kind.ts";
import { kafkaDestination } from "./destinations/kafka/kind.ts";
import { natsDestination } from "./destinations/nats/kind.ts";
import { rabbitmqDestination } from "./destinations/rabbitmq/kind.ts";
import { kafkaSource } from "./sources/kafka/kind.ts";
import { natsSource } from "./sources/nats/kind.ts";
import { rabbitmqSource } from "./sources/rabbitmq/kind.ts";

/** Every kind of destination, in the order in which an entry's keys are tried (spec, "Entry kinds"). */
export const DESTINATION_KINDS = {
  http: httpDestination,
  rabbitmq: rabbitmqDestination,
  kafka: kafkaDestination,
  nats: natsDestination,
} as const;

/** Every kind of source that consumes from a broker, in the same order, behind `http`. */
export const BROKER_SOURCE_KINDS = {
  rabbitmq: rabbitmqSource,
  kafka: kafkaSource,
  nats: natsSource,
} as const;

/** The kind of a destination, for callers that treat all alike: its members take the entry that it was asked for. */
export function destinationKindOf(entry: {
  readonly kind: keyof typeof DESTINATION_KINDS;
}): DestinationKind<AnySchema> {
  return DESTINATION_KINDS[entry.kind] as unknown as DestinationKind<AnySchema>;
}

/** The kind of a broker source, as {@link destinationKindOf}. */
export function sourceKindOf(entry: { readonly kind: keyof typeof BROKER_SOURCE_KINDS }): SourceKind<AnySchema> {
  return BROKER_SOURCE_KINDS[entry.kind] as unknown as SourceKind<AnySchema>;
}
