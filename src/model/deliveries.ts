import { createHash } from "node:crypto";
import type { MessageId } from "./rows.ts";

/**
 * The id of a delivery row: derived from message and destination, so that the primary key forbids a second one. It
 * begins like the id of the message, its neighbour in the index.
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
