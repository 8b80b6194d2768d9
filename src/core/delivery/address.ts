import { PublishError } from "../../model/errors.ts";
import { type MessageFields, type MessageTemplate, parseAddressTemplate } from "./template.ts";

/** Row columns that may hold an address (spec: `exchangeFrom`, `topicFrom`, `subjectFrom`), and how to read each. */
const ADDRESS_COLUMNS = {
  aggregate_type: (fields: MessageFields) => fields.aggregateType,
  topic: (fields: MessageFields) => fields.topic,
  key: (fields: MessageFields) => fields.key,
} as const;

/** Gives the exchange, topic or subject of a message. */
export interface Address {
  /** @throws PublishError `address_empty` when nothing but blanks is left: the publish of this row fails */
  render(fields: MessageFields): string;
}

/**
 * Compiles the address of a broker destination.
 *
 * @param config `name`: what is addressed, for messages (`exchange`, `topic`, `subject`); `template`: its value; `from`: the column
 *   that holds it instead, taken as it is, without rendering
 * @throws Error that names an unknown placeholder or column and the permitted ones
 */
export function compileAddress(config: {
  readonly name: string;
  readonly template: string;
  readonly from: string | undefined;
}): Address {
  const { name, template, from } = config;
  const read = from === undefined ? renderer(parseAddressTemplate(template)) : columnReader(from);
  const origin = from === undefined ? `the template ${JSON.stringify(template)}` : `the column ${from}`;
  return {
    render(fields) {
      const address = read(fields);
      if (address.trim() !== "") return address;
      throw new PublishError("address_empty", `the ${name} is empty: ${origin} gave no text for this row`);
    },
  };
}

function renderer(template: MessageTemplate): (fields: MessageFields) => string {
  return (fields) => template.render(fields);
}

function columnReader(column: string): (fields: MessageFields) => string {
  if (!isAddressColumn(column)) {
    const permitted = Object.keys(ADDRESS_COLUMNS).join(", ");
    throw new Error(`unknown column ${JSON.stringify(column)}; permitted are ${permitted}`);
  }
  const read = ADDRESS_COLUMNS[column];
  return (fields) => read(fields) ?? "";
}

function isAddressColumn(name: string): name is keyof typeof ADDRESS_COLUMNS {
  return Object.hasOwn(ADDRESS_COLUMNS, name);
}

/** How a destination kind makes the routing key (AMQP) or record key (log broker) of a message. */
export interface RoutingKey {
  /** The destination's own template; a route's template wins over it. */
  readonly template: MessageTemplate;
  /** Log broker: an empty result sends no key. AMQP: an empty routing key is a key. */
  readonly emptyMeansNone: boolean;
}

/** What a matched route says about the routing key. */
export interface RouteRoutingKey {
  readonly routingKey: MessageTemplate | null;
  /** `routingKeyMissingFieldDefault`. */
  readonly routingKeyMissing: string;
}

/** The routing key of one message; null when there is none. */
export function renderRoutingKey(
  destination: RoutingKey | null,
  route: RouteRoutingKey,
  fields: MessageFields,
): string | null {
  if (destination === null) return null;
  const template = route.routingKey ?? destination.template;
  const rendered = template.render(fields, route.routingKeyMissing);
  return rendered === "" && destination.emptyMeansNone ? null : rendered;
}
