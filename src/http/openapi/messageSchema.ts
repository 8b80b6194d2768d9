import { parseJsonPath } from "../../core/receipt/jsonPath.ts";
import { STORABLE } from "./schemas.ts";
import type { ServedSource } from "./served.ts";
import type { Schema } from "./types.ts";

/** The body that a source takes: any JSON value in which the idempotency key is found. */
export function messageSchema({ idempotencyKeyPath, eventTypePath, aggregateIdPath }: ServedSource): Schema {
  const key = at(parseJsonPath(idempotencyKeyPath).segments, IDEMPOTENCY_KEY, true);
  const optional = [
    [aggregateIdPath, "The aggregate id: messages with the same one stay in order."] as const,
    [eventTypePath, "The event type."] as const,
  ].flatMap(([path, description]) =>
    path === undefined ? [] : [at(parseJsonPath(path).segments, { ...ATTRIBUTE, description }, false)],
  );
  return [key, ...optional].reduce(merged);
}

const IDEMPOTENCY_KEY: Schema = {
  type: ["string", "number", "boolean"],
  minLength: 1,
  description: "The idempotency key.",
};

/** Of any type; one that is neither text, number nor boolean counts as absent. */
const ATTRIBUTE: Schema = { maxLength: 1024, pattern: STORABLE };

/** A schema that holds another one at a place in a document. */
function at([segment, ...rest]: readonly (string | number)[], leaf: Schema, isRequired: boolean): Schema {
  if (segment === undefined) return leaf;
  const below = at(rest, leaf, isRequired);
  if (typeof segment === "string") {
    const properties = { [segment]: below };
    return isRequired ? { type: "object", required: [segment], properties } : { properties };
  }
  const items = segment < 0 ? {} : { prefixItems: [...Array<Schema>(segment).fill({}), below] };
  return isRequired ? { type: "array", minItems: segment < 0 ? -segment : segment + 1, ...items } : items;
}

/** Both schemas in one; where they speak of the same member, of both. */
function merged(one: Schema, other: Schema): Schema {
  const [first, second] = [one.properties, other.properties] as (Record<string, Schema> | undefined)[];
  if (first === undefined || second === undefined) return { allOf: [one, other] };
  const shared = Object.entries(second).map(([name, schema]) => {
    const known = Object.hasOwn(first, name) ? first[name] : undefined;
    return [name, known === undefined ? schema : merged(known, schema)] as const;
  });
  return { ...other, ...one, properties: { ...first, ...Object.fromEntries(shared) } };
}
