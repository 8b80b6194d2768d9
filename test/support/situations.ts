import { randomUUID } from "node:crypto";
import { deliveryId } from "../../src/model/deliveries.ts";
import { type MessageId, PARKED_UNTIL } from "../../src/model/rows.ts";
import type { TestDatabase } from "./databases.ts";

/** Inserts an outbox row; `set` is for what an application would not write. */
export async function insert(
  database: TestDatabase,
  key: string | null,
  set = "state = 'pending'",
  topic = "orders.created",
) {
  const id = randomUUID();
  await database.query("INSERT INTO outbox (id, topic, key, payload) VALUES ($1, $2, $3, '{}')", [id, topic, key]);
  await database.query(`UPDATE outbox SET ${set} WHERE id = $1`, [id]);
  return id;
}

/**
 * Inserts a message of the topic `orders.created` that was expanded, with its deliveries.
 *
 * @param deliveries what is set in the row of each, by destination
 * @returns the id of the message
 */
export async function insertDelivered(
  database: TestDatabase,
  key: string | null,
  deliveries: Readonly<Record<string, string>>,
): Promise<MessageId> {
  const names = Object.keys(deliveries);
  const id = (await insert(database, key)) as MessageId;
  await database.query(
    `UPDATE outbox SET state = 'sent', expanded_to = $2, payload = '{"of":"message"}', headers = '{"x-correlation-id":"c-4711"}' WHERE id = $1`,
    [id, JSON.stringify(names)],
  );
  for (const destination of names) {
    const delivery = deliveryId(id, destination);
    await database.query(
      `INSERT INTO outbox (id, topic, key, destination, message_sequence, created_at, scheduled_at)
       SELECT $2, topic, key, $3, sequence, created_at, created_at FROM outbox WHERE id = $1`,
      [id, delivery, destination],
    );
    await database.query(`UPDATE outbox SET ${deliveries[destination]} WHERE id = $1`, [delivery]);
  }
  return id;
}

/** Another process of the fleet, with a role. */
async function alive(database: TestDatabase, role: string): Promise<void> {
  const values = "($1, '1', $1, now(), now())";
  await database.query(`INSERT INTO outbox_process (name, version, roles, started_at, seen_at) VALUES ${values}`, [
    role,
  ]);
}

const SHARED = "INSERT INTO outbox_destination";
/** Why a message waits: the code, a part of the text, and what brings it about. @returns the id of the message */
export const SITUATIONS: readonly (readonly [string, string, (database: TestDatabase) => Promise<string>])[] = [
  [
    "due",
    "waits for a free slot",
    async (database) => {
      await alive(database, "poller");
      return await insert(database, null);
    },
  ],
  ["no_poller", "no process with the role poller was seen", (database) => insert(database, null)],
  [
    "behind_row",
    "which is pending",
    async (database) => {
      await insert(database, "k");
      return await insert(database, "k");
    },
  ],
  [
    "behind_row",
    "which is parked",
    async (database) => {
      await insert(database, "k", `attempt = 5, scheduled_at = '${PARKED_UNTIL}'`);
      return await insert(database, "k");
    },
  ],
  [
    "retry",
    "failed 2 of 5 times",
    (database) => insert(database, "k", "attempt = 2, scheduled_at = now() + interval '1 hour'"),
  ],
  ["scheduled", "never due", (database) => insert(database, "k", "scheduled_at = 'infinity'")],
  ["scheduled", "scheduled ahead", (database) => insert(database, "k", "scheduled_at = now() + interval '1 hour'")],
  ["parked", "svc parked retry", (database) => insert(database, "k", `attempt = 5, scheduled_at = '${PARKED_UNTIL}'`)],
  ["no_route", 'no route matches the topic "bills"', (database) => insert(database, "k", undefined, "bills")],
  [
    "in_delivery",
    "its delivery is under way",
    (database) =>
      insert(
        database,
        "k",
        "state = 'processing', claim_token = gen_random_uuid(), claimed_at = now(), lease_expires_at = now() + interval '1 minute'",
      ),
  ],
  [
    "lease_expired",
    "a poller takes it again",
    (database) =>
      insert(
        database,
        "k",
        "state = 'processing', claim_token = gen_random_uuid(), claimed_at = now(), lease_expires_at = now() - interval '1 minute'",
      ),
  ],
  [
    "paused",
    "receiver is paused by alice: they migrate",
    async (database) => {
      await database.query(
        `${SHARED} (name, paused_at, paused_by, pause_reason) VALUES ('receiver', now(), 'alice', 'they migrate')`,
      );
      return await insert(database, null);
    },
  ],
  [
    "breaker_open",
    "the circuit breaker of receiver is open (answered 500)",
    async (database) => {
      await database.query(
        `${SHARED} (name, breaker_state, openings, opened_at, open_until, breaker_reason) VALUES ('receiver', 'open', 1, now(), now() + interval '1 hour', 'answered 500')`,
      );
      return await insert(database, null);
    },
  ],
  [
    "rate_limited",
    "the rate limit of receiver (1 per second) is reached",
    async (database) => {
      // In whichever of the next seconds the answer is made, the second before it was full.
      await database.query(
        `${SHARED} (name, rate_second, rate_taken, rate_taken_before) VALUES ('receiver', date_trunc('second', clock_timestamp()), 5, 5)`,
      );
      return await insert(database, null);
    },
  ],
  [
    "no_relay",
    "no process with the role relay was seen",
    async (database) => {
      const id = randomUUID();
      await database.query(
        "INSERT INTO inbox (id, source, idempotency_key, payload) VALUES ($1, 'orders', 'i', '{}')",
        [id],
      );
      return id;
    },
  ],
  [
    "relay",
    "waits in the inbox for a process with the role relay",
    async (database) => {
      await alive(database, "relay");
      const id = randomUUID();
      await database.query(
        "INSERT INTO inbox (id, source, idempotency_key, payload) VALUES ($1, 'orders', 'i', '{}')",
        [id],
      );
      return id;
    },
  ],
  [
    "unknown_source",
    "the source gone is not configured",
    async (database) => {
      const id = randomUUID();
      await database.query("INSERT INTO inbox (id, source, idempotency_key, payload) VALUES ($1, 'gone', 'i', '{}')", [
        id,
      ]);
      return id;
    },
  ],
  [
    "pull_client",
    "waits for a client to pull",
    async (database) => {
      const id = randomUUID();
      await database.query(
        "INSERT INTO inbox (id, source, idempotency_key, payload, consumption) VALUES ($1, 'orders', 'i', '{}', 'pull')",
        [id],
      );
      return id;
    },
  ],
];
