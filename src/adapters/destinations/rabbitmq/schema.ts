import type { Infer } from "../../../model/schema.ts";
import { ADDRESS_COLUMNS } from "../../../ports/kinds.ts";

/** Keys of an AMQP destination (spec, "AMQP destination"). */
export const rabbitmqDestinationSchema = {
  type: "object",
  description: "Declares the exchange, publishes with the mandatory flag and waits for the confirm.",
  required: ["url", "exchange"],
  properties: {
    url: {
      type: "string",
      url: true,
      description: "AMQP URI such as `amqp://user:password@host:5672/vhost`. Takes no `file:`.",
    },
    exchange: { type: "string", syntax: "address", description: "Exchange: a name or an address template." },
    exchangeFrom: {
      type: "string",
      enum: ADDRESS_COLUMNS,
      description: "Row column that holds the exchange; wins over `exchange`.",
    },
    exchangeType: {
      type: "string",
      enum: ["topic", "direct", "fanout"],
      default: "topic",
      description: "Type with which the exchange is declared.",
    },
    routingKeyTemplate: {
      type: "string",
      syntax: "routingKey",
      default: "{{ topic }}",
      description: "Routing key when the matched route sets none.",
    },
    deliveryMode: {
      type: "string",
      enum: ["persistent", "transient"],
      default: "persistent",
      description: "Whether the broker keeps messages on disk.",
    },
  },
} as const;

export type RabbitmqDestinationConfig = Infer<typeof rabbitmqDestinationSchema>;
