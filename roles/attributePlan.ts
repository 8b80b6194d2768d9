import type { SourceConfig } from "../src/config/types.ts";
import { type AttributePlan, attributePlans } from "../src/core/receipt/attributes.ts";

/** The places of the attributes of a source's messages, in the order of its kind. */
export function attributePlanOf(settings: SourceConfig): AttributePlan {
  switch (settings.kind) {
    case "http":
      return attributePlans.http(settings);
    case "rabbitmq":
      return attributePlans.rabbitmq(settings);
    case "kafka":
      return attributePlans.kafka(settings);
    case "nats":
      return attributePlans.nats(settings);
    default:
      return settings satisfies never;
  }
}
