import { destinationKindOf } from "../adapters/kinds.ts";
import type { DestinationConfig } from "../config/types.ts";
import type { DeliveryTarget } from "../core/delivery/deliver.ts";
import {
  type Address,
  compileAddress,
  compilePath,
  parseAddressTemplate,
  parseRecordKeyTemplate,
  parseRoutingKeyTemplate,
} from "../core/delivery/template.ts";
import type { NamedDestination } from "../model/spans.ts";
import type { AddressColumn } from "../ports/kinds.ts";

/**
 * The address of a message at its receiver, by kind (spec, "Templates"); null for a path without placeholders.
 *
 * @throws Error that names an unknown placeholder, which the configuration's own check refuses before
 */
export function addressingOf(config: DestinationConfig): Pick<DeliveryTarget, "address" | "routingKey"> {
  const { address, routingKey } = destinationKindOf(config);
  const keys = config as unknown as Readonly<Record<string, string>>;
  return {
    address: address && compileAddressOf(address, keys),
    routingKey: routingKey && {
      template: TEMPLATES[routingKey.fields](keys[routingKey.template] ?? ""),
      emptyMeansNone: routingKey.emptyMeansNone,
    },
  };
}

/**
 * The configured exchange, topic or subject of a broker destination, and whether it has placeholders; undefined for a
 * column in its place, and for HTTP, whose path is not one.
 */
export function addressTemplateOf(config: DestinationConfig): NamedDestination["address"] {
  const { address } = destinationKindOf(config);
  const keys = config as unknown as Readonly<Record<string, string | undefined>>;
  if (address === null || address.from === null || keys[address.from] !== undefined) return undefined;
  const { text, hasPlaceholders } = parseAddressTemplate(keys[address.template] ?? "");
  return { text, isTemplate: hasPlaceholders };
}

function compileAddressOf(
  { name, template, from }: NonNullable<ReturnType<typeof destinationKindOf>["address"]>,
  keys: Readonly<Record<string, string>>,
): Address | null {
  const text = keys[template] ?? "";
  if (from === null) return compilePath(text);
  return compileAddress({ name, template: text, from: keys[from] as AddressColumn | undefined });
}

const TEMPLATES = { all: parseRoutingKeyTemplate, columns: parseRecordKeyTemplate } as const;
