import { createHash } from "node:crypto";
import type { MessageId } from "./rows.ts";

/** Delivery rows: those of a message that goes to several destinations. */

/**
 * The id of a delivery row: a function of its message and its destination, so that the table's key forbids a second one. It
 * begins as the id of the message: a message and its deliveries are neighbours in the index of the ids.
 *
 * @param destination of the list, not that of a later replay
 */
export function deliveryId(message: MessageId, destination: string): MessageId {
  const hash = createHash("sha256").update(`${message.toLowerCase()} ${destination}`).digest("hex");
  // The variant of RFC 9562 in front of 60 bits of the hash.
  return `${message.slice(0, 19).toLowerCase()}a${hash.slice(0, 3)}-${hash.slice(3, 15)}` as MessageId;
}

/** The destinations in the column `expanded_to` of a message row; undefined for any other row. */
export function destinationsIn(expandedTo: unknown): readonly string[] | undefined {
  return typeof expandedTo === "string" ? (JSON.parse(expandedTo) as readonly string[]) : undefined;
}
