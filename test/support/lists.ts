import { deliveryId } from "../../src/model/deliveries.ts";
import type { MessageId } from "../../src/model/rows.ts";
import type { TestDatabase } from "./databases.ts";

interface ExpandedMessage {
  readonly topic?: string;
  readonly key?: string;
  /** Of the message and its deliveries. */
  readonly finishedMsAgo?: number;
  /** The state of the delivery to each destination of the list, in its order; null for a row that is deleted. */
  readonly deliveries: Readonly<Record<string, "pending" | "sent" | "dead" | null>>;
}

/** Inserts a message row and its delivery rows, as an expansion does. @returns the id of the message */
export async function insertExpanded(
  database: Pick<TestDatabase, "query">,
  { topic = "orders", key, finishedMsAgo = 3_600_000, deliveries }: ExpandedMessage,
): Promise<MessageId> {
  const finished = "now() - $1 * interval '1 millisecond'";
  const [message] = await database.query<{ id: MessageId; sequence: string }>(
    `INSERT INTO outbox (topic, key, payload, headers, state, expanded_to, created_at, scheduled_at, updated_at, max_attempts)
     VALUES ($2, $3, '{"n":1}', '{"a":"b"}', 'sent', $4, ${finished}, ${finished}, ${finished}, 7) RETURNING id, sequence`,
    [finishedMsAgo, topic, key ?? null, JSON.stringify(Object.keys(deliveries))],
  );
  if (message === undefined) throw new Error("the message was not inserted");
  const { id, sequence } = message;
  for (const [destination, state] of Object.entries(deliveries)) {
    if (state === null) continue;
    await database.query(
      `INSERT INTO outbox (id, message_sequence, topic, key, payload, headers, state, destination, created_at, scheduled_at, updated_at, max_attempts)
       VALUES ($2, $3, $4, $5, NULL, NULL, $6, $7, ${finished}, ${finished}, ${finished}, 7)`,
      [finishedMsAgo, deliveryId(id, destination), sequence, topic, key ?? null, state, destination],
    );
  }
  return id;
}
