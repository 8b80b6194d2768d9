import { destinationKindOf } from "../src/adapters/kinds.ts";
import type { DestinationConfig } from "../src/config/types.ts";
import type { DeliveryTarget } from "../src/core/delivery/deliver.ts";
import { compileAddress, parseRecordKeyTemplate, parseRoutingKeyTemplate } from "../src/core/delivery/template.ts";

/**
 * Where the messages of a destination go within its broker (spec, "Templates"), as its kind says; nothing of it for HTTP.
 *
 * @throws Error that names an unknown placeholder or column; the configuration's own check has refused it before
 */
export function addressingOf(config: DestinationConfig): Pick<DeliveryTarget, "address" | "routingKey"> {
  const { address, routingKey } = destinationKindOf(config);
  const keys = config as unknown as Readonly<Record<string, string>>;
  return {
    address:
      address &&
      compileAddress({ name: address.name, template: keys[address.template] ?? "", from: keys[address.from] }),
    routingKey: routingKey && {
      template: TEMPLATES[routingKey.fields](keys[routingKey.template] ?? ""),
      emptyMeansNone: routingKey.emptyMeansNone,
    },
  };
}

const TEMPLATES = { all: parseRoutingKeyTemplate, columns: parseRecordKeyTemplate } as const;
