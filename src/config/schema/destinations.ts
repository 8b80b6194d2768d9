import { httpDestinationSchema } from "../../adapters/destinations/http/schema.ts";
import { kafkaDestinationSchema } from "../../adapters/destinations/kafka/schema.ts";
import { natsDestinationSchema } from "../../adapters/destinations/nats/schema.ts";
import { rabbitmqDestinationSchema } from "../../adapters/destinations/rabbitmq/schema.ts";
import { transformSchema } from "./blocks.ts";

/** Keys of every destination (spec, "destinations.<name> (common keys)"). */
export const commonDestinationKeys = {
  headers: {
    type: "object",
    additionalProperties: { type: "string" },
    default: {},
    description: "Static headers on every message; a header of the row wins over one of the same name.",
  },
  transform: { ...transformSchema, description: "Runs after the route's transform, at each delivery attempt." },
} as const;

/** Section `destinations`. A new kind is its adapter's schema and a line here. */
export const destinationsSchema = {
  type: "object",
  default: {},
  description: "Where messages go, by name.",
  additionalProperties: {
    description: "A destination.",
    kinds: {
      http: {
        ...httpDestinationSchema,
        properties: { ...httpDestinationSchema.properties, ...commonDestinationKeys },
      },
      rabbitmq: {
        ...rabbitmqDestinationSchema,
        properties: { ...rabbitmqDestinationSchema.properties, ...commonDestinationKeys },
      },
      kafka: {
        ...kafkaDestinationSchema,
        properties: { ...kafkaDestinationSchema.properties, ...commonDestinationKeys },
      },
      nats: {
        ...natsDestinationSchema,
        properties: { ...natsDestinationSchema.properties, ...commonDestinationKeys },
      },
    },
  },
} as const;
