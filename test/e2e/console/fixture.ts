import { randomUUID } from "node:crypto";
import { PARKED_UNTIL } from "../../../src/model/rows.ts";
import type { TestDatabase } from "../../support/databases.ts";
import { type ConfigTree, databaseConfig, merged, type Service, type Services } from "../../support/service.ts";
import { insertDelivered } from "../../support/situations.ts";

/** A service of the role `admin` over a database in which something of everything has happened. */

export const TOKEN = "the-admin-token";
/** Secrets of the configuration and a hidden field of payloads: no page and no answer has them. */
export const PLANTED = { secret: "planted-secret-4c1d", card: "4111-1111-1111-1111" };
/** Markup that would run if it were one. */
export const HOSTILE = '<img src=x onerror="document.body.dataset.hacked=1">';

export interface Furnished {
  readonly database: TestDatabase;
  readonly service: Service;
  readonly address: string;
  /** For commands. */
  readonly configFile: string;
  /** A message that failed twice and waits for its third attempt. */
  readonly retried: string;
  readonly parked: string;
  readonly behindParked: string;
  readonly sent: string;
  /** A message of a list: delivered to one destination, dead on the way to the other. */
  readonly expanded: string;
  readonly dead: string;
  readonly hostile: string;
}

export const CONFIG: ConfigTree = {
  sources: {
    orders: {
      path: "/orders",
      idempotencyKeyPath: "$.id",
      aggregateIdPath: "$.customer",
      eventTypePath: "$.type",
      topic: "orders.{{ eventType }}",
    },
    payments: { path: "/payments", idempotencyKeyPath: "$.id", topic: "payments.received" },
  },
  destinations: {
    billing: {
      baseUrl: "http://127.0.0.1:9",
      path: "/billing",
      auth: { headerName: "X-Api-Key", headerValue: PLANTED.secret },
      rateLimit: { perSecond: 50 },
    },
    shipping: { baseUrl: "http://127.0.0.1:9", path: "/shipping" },
  },
  routes: [
    { topicPattern: "orders.**", destination: "shipping", onExhausted: "park" },
    { topicPattern: "**", destination: "billing" },
  ],
  admin: {
    enabled: true,
    console: true,
    showPayloads: true,
    auth: { type: "bearer", token: TOKEN },
  },
};

/** Hides the planted field. */
export const HIDING: ConfigTree = { admin: { redactPayloadPaths: ["$.card.number"] } };

/** Starts the service and fills its database. @param config merged over {@link CONFIG} */
export async function furnish(services: Services, config: ConfigTree = {}): Promise<Furnished> {
  const database = await services.database();
  const service = await services.start({ database, roles: ["admin"], config: merged(CONFIG, config) });
  const ids = await fill(database);
  const configFile = services.configFile(merged(merged(CONFIG, config), { database: databaseConfig(database) }));
  return { database, service, configFile, address: `http://127.0.0.1:${service.port}/console`, ...ids };
}

async function fill(database: TestDatabase) {
  const row = (topic: string, key: string | null, set: string, minutesAgo: number, payload: object = {}) =>
    insert(database, { topic, key, set, minutesAgo, payload });
  for (let n = 0; n < 40; n++) {
    await row(n % 3 === 0 ? "payments.received" : "orders.created", `customer-${n % 7}`, "state = 'sent'", 50 - n, {
      id: n,
    });
  }
  const answered = "POST http://127.0.0.1:9/billing was answered 422: the account is closed";
  for (let n = 0; n < 5; n++) {
    await row(
      "payments.received",
      null,
      `state = 'dead', attempt = 5, last_error = '${answered}, case ${4700 + n}'`,
      30 - n,
    );
  }
  const sent = await row("orders.created", "customer-1", "state = 'sent', attempt = 0", 5, { id: "order-4709" });
  const dead = await row(
    "payments.received",
    null,
    `state = 'dead', attempt = 5, last_error = 'answered 401: bad token ${PLANTED.secret}'`,
    6,
    { id: "p-1", card: { number: PLANTED.card } },
  );
  const retried = await received(database, {
    key: "customer-17",
    payload: {
      id: "order-4711",
      type: "created",
      customer: "customer-17",
      card: { number: PLANTED.card },
    },
    set: "attempt = 2, scheduled_at = now() + interval '20 minutes', last_error = 'POST http://127.0.0.1:9/shipping was answered 503: not today'",
  });
  const attempt = `INSERT INTO outbox_history (outbox_id, at, event, attempt, actor, destination, code, status, duration_ms, reason)
    VALUES ($1, now() - $2::interval, 'retry', $3, 'svc-poller-7f9c-1', 'shipping', 'status_5xx', '503', 41, $4)`;
  const reason = `POST http://127.0.0.1:9/shipping was answered 503: not today (${PLANTED.card}, ${PLANTED.secret})`;
  await database.query(attempt, [retried, "3 minutes", 1, reason]);
  await database.query(attempt, [retried, "1 minute", 2, reason]);
  const parkedSet = `attempt = 5, scheduled_at = '${PARKED_UNTIL}', last_error = 'POST http://127.0.0.1:9/shipping was answered 400: unknown article'`;
  const parked = await row("orders.changed", "customer-23", parkedSet, 12, { id: "order-4690" });
  const behindParked = await row("orders.changed", "customer-23", "state = 'pending'", 4, { id: "order-4702" });
  await row("orders.changed", "customer-23", "state = 'pending'", 3, { id: "order-4703" });
  const hostile = await insert(database, {
    topic: `payments.${HOSTILE}`,
    key: HOSTILE,
    set: "state = 'dead', attempt = 5",
    minutesAgo: 2,
    payload: { note: HOSTILE },
    headers: { "x-note": HOSTILE },
  });
  await database.query("UPDATE outbox SET last_error = $2 WHERE id = $1", [hostile, `answered 500: ${HOSTILE}`]);
  const expanded = await insertDelivered(database, "customer-42", {
    shipping: "state = 'sent'",
    billing: "state = 'dead', attempt = 5, last_error = 'POST http://127.0.0.1:9/billing was answered 410: closed'",
  });
  await database.query(
    "INSERT INTO outbox_history (outbox_id, event, destination, reason) VALUES ($1, 'skipped', 'fraud', 'its condition is false')",
    [expanded],
  );
  await countSomething(database);
  return { sent, expanded, dead, retried, parked, behindParked, hostile };
}

interface Row {
  readonly topic: string;
  readonly key: string | null;
  readonly set: string;
  readonly minutesAgo: number;
  readonly payload: object;
  readonly headers?: Readonly<Record<string, string>>;
}

async function insert(
  database: TestDatabase,
  { topic, key, set, minutesAgo, payload, headers = {} }: Row,
): Promise<string> {
  const id = randomUUID();
  await database.query(
    `INSERT INTO outbox (id, topic, key, payload, headers, created_at, scheduled_at, updated_at)
     VALUES ($1, $2, $3, $4, $5, now() - $6::interval, now() - $6::interval, now() - $6::interval)`,
    [id, topic, key, JSON.stringify(payload), JSON.stringify(headers), `${minutesAgo} minutes`],
  );
  await database.query(`UPDATE outbox SET ${set} WHERE id = $1`, [id]);
  return id;
}

/** A message with an inbox row. */
async function received(
  database: TestDatabase,
  { key, payload, set }: { readonly key: string; readonly payload: object; readonly set: string },
): Promise<string> {
  const id = await insert(database, { topic: "orders.created", key, set, minutesAgo: 4, payload });
  await database.query(
    `INSERT INTO inbox (id, source, idempotency_key, aggregate_id, event_type, payload, state, created_at, processed_at, correlation_id)
     VALUES ($1, 'orders', 'order-4711', $2, 'created', $3, 'processed', now() - interval '4 minutes', now() - interval '4 minutes', 'c-4711')`,
    [id, key, JSON.stringify(payload)],
  );
  return id;
}

/** Processes that are alive for as long as the test, and an hour of figures that rise and fall. */
async function countSomething(database: TestDatabase): Promise<void> {
  await database.query(
    `INSERT INTO outbox_process (name, version, roles, started_at, seen_at)
     SELECT name, '0.1.0', roles, now() - interval '1 day', now() + interval '1 hour'
       FROM (VALUES ('svc-ingest-6d8f-1', 'ingest relay'), ('svc-ingest-6d8f-2', 'ingest relay'),
                    ('svc-poller-7f9c-1', 'poller'), ('svc-poller-7f9c-2', 'poller')) AS process (name, roles)`,
  );
  await database.query(
    `INSERT INTO outbox_figures (minute, kind, name, received, duplicate, sent, failed)
     SELECT date_trunc('minute', now()) - n * interval '1 minute', kind, name,
            CASE kind WHEN 'source' THEN wave ELSE 0 END, CASE WHEN kind = 'source' AND n % 9 = 0 THEN height / 6 ELSE 0 END,
            CASE kind WHEN 'destination' THEN wave ELSE 0 END, CASE WHEN name = 'billing' AND n < 14 THEN wave / 4 ELSE 0 END
       FROM (VALUES ('source', 'orders', 240), ('source', 'payments', 90),
                    ('destination', 'shipping', 240), ('destination', 'billing', 90)) AS series (kind, name, height),
            generate_series(0, 70) n,
            LATERAL (SELECT round(height * (1.2 + sin(n / 7.0) + cos(n / 2.3) / 5))::bigint AS wave) AS waves`,
  );
}
