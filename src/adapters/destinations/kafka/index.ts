import type { Destination, OutboundMessage } from "../../../ports/destination.ts";
import { InFlight } from "../../brokers/inFlight.ts";
import type { BrokerTools } from "../../brokers/tools.ts";
import { checkedTopic, kafkaError } from "./errors.ts";
import { Publication } from "./publication.ts";
import type { KafkaDestinationConfig } from "./schema.ts";
import { Sender } from "./sender.ts";

/**
 * A log-broker destination (spec, "Log-broker destination"): acks=all, idempotent producer, no topic is ever created.
 *
 * Publishes that are ready together are sent together. A publish that ends by its timeout or its signal while its record is under way may still
 * be stored: the row's retry then stores it a second time.
 */
export function createKafkaDestination(config: KafkaDestinationConfig, tools: BrokerTools): Destination {
  const { timeoutMs, bootstrapServers } = config;
  const sender = new Sender(config, timeoutMs, tools);
  const inFlight = new InFlight();
  let closed: Promise<void> | undefined;

  const close = async (): Promise<void> => {
    inFlight.failAll(kafkaError("closed", `the destination on ${bootstrapServers} was closed`));
    await sender.close();
  };

  return {
    kind: "kafka",
    async publish(message: OutboundMessage, signal: AbortSignal) {
      signal.throwIfAborted();
      if (closed !== undefined) throw kafkaError("closed", `the destination on ${bootstrapServers} is closed`);
      const topic = checkedTopic(message.address);
      const publication = new Publication(topic, message, { inFlight, signal, timeoutMs }, bootstrapServers);
      inFlight.add(publication);
      sender.add(publication);
      return publication.outcome;
    },
    close() {
      closed ??= close();
      return closed;
    },
  };
}
