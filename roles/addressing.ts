import type { DestinationConfig } from "../src/config/types.ts";
import { compileAddress } from "../src/core/delivery/address.ts";
import type { DeliveryTarget } from "../src/core/delivery/deliver.ts";
import { parseRecordKeyTemplate, parseRoutingKeyTemplate } from "../src/core/delivery/template.ts";

/**
 * Where the messages of a destination go within its broker (spec, "Templates"); nothing of it for HTTP.
 *
 * @throws Error that names an unknown placeholder or column; the configuration's own check has refused it before
 */
export function addressingOf(config: DestinationConfig): Pick<DeliveryTarget, "address" | "routingKey"> {
  switch (config.kind) {
    case "http":
      return { address: null, routingKey: null };
    case "rabbitmq":
      return {
        address: compileAddress({ name: "exchange", template: config.exchange, from: config.exchangeFrom }),
        routingKey: { template: parseRoutingKeyTemplate(config.routingKeyTemplate), emptyMeansNone: false },
      };
    case "kafka":
      return {
        address: compileAddress({ name: "topic", template: config.topic, from: config.topicFrom }),
        routingKey: { template: parseRecordKeyTemplate(config.keyTemplate), emptyMeansNone: true },
      };
    case "nats":
      return {
        address: compileAddress({ name: "subject", template: config.subject, from: config.subjectFrom }),
        routingKey: null,
      };
  }
}
