import { type BrokerKind, sharedKafka, sharedNats, sharedRabbitmq } from "../brokers/servers.ts";
import { kafkaEnd } from "./kafka.ts";
import { natsEnd } from "./nats.ts";
import { rabbitmqEnd } from "./rabbitmq.ts";
import type { BrokerEnd } from "./types.ts";

export { kafkaEnd } from "./kafka.ts";
export { natsEnd } from "./nats.ts";
export { rabbitmqEnd } from "./rabbitmq.ts";
export type { ArrivedMessage, BrokerEnd, SentMessage } from "./types.ts";

/** Ends in the run's shared server of a kind. */
export async function sharedEnd(kind: BrokerKind): Promise<BrokerEnd> {
  switch (kind) {
    case "rabbitmq":
      return rabbitmqEnd(await sharedRabbitmq());
    case "kafka":
      return kafkaEnd(await sharedKafka());
    case "nats":
      return natsEnd(await sharedNats());
  }
}
