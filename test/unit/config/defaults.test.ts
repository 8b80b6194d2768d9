import { describe, expect, test } from "@jest/globals";
import { CORE_SCHEMA, load as parse } from "js-yaml";
import { INBOX_COLUMNS, OUTBOX_COLUMNS } from "../../../src/model/rows.ts";
import { loadWith } from "./support.ts";

/** The tables of the specification; null for "none". */
const SECTIONS = `
server: { httpPort: 8080, managementPort: ~ }
database: { type: postgresql, poolSize: 10, connectionTimeoutMs: 30000, startupTimeoutMs: 60000, migrate: true,
  outboxTableName: outbox, inboxTableName: inbox }
outbox: { pollIntervalMs: 100, batchSize: 100, concurrency: 8, retryBaseDelayMs: 1000, maxAttempts: 5,
  claimTimeoutMs: 300000, pendingGaugeIntervalMs: 5000, shutdownTimeoutMs: 30000 }
outbox.capture: { mode: polling, enabled: false, identity: svc, stateDirectory: "", schema: public,
  publication: svc_outbox, slot: svc_outbox, reconciliationIntervalMs: 1000 }
outbox.capture.connection: { hostname: db.internal, port: 5432, database: svc, username: svc,
  encrypt: true, trustServerCertificate: false }
inbox: { basePath: /inbox, maxBodyBytes: 1048576 }
inbox.relay: { enabled: true, pollIntervalMs: 100, batchSize: 100, claimTimeoutMs: 300000, pendingGaugeIntervalMs: 5000,
  maxAttempts: 5 }
inbox.pull: { enabled: false, auth: ~, basePath: /pull, leaseMs: 30000, maxAttempts: 5 }
http: { maxErrorBodyBytes: 2048, blockPrivateAddresses: false }
admin: { enabled: false, auth: ~, insecure: false, maxTransformTimeoutMs: 1000, maxPayloadBytes: 65536 }
"": { destinations: {}, routes: [], sources: {} }
retention: { enabled: false }
retention.outbox: { policy: DISABLED, maxAge: ~, maxCount: ~, cleanupInterval: 3600000, batchSize: 1000 }
retention.inbox: { policy: DISABLED, maxAge: ~, cleanupInterval: 3600000, batchSize: 1000 }
`;

const SOURCE = "path: /p, idempotencyKeyPath: $.id, topic: t";
const OF_SOURCES =
  "consumption: push, keyScope: shared, aggregateIdPath: ~, transform: ~, filter: ~, rateLimit: ~, eventTypePath";
const HEADERS = "idempotencyKey: x-idempotency-key, aggregateId: x-aggregate-id, eventType: x-event-type";
const OF_BROKERS = `${OF_SOURCES}: ~, topic: "{{ source }}", idempotencyKeyPath: [$.id], eventTypeFromHeader: false, required: true, attributeHeaders: { ${HEADERS} }`;
const NO_SASL = "securityProtocol: PLAINTEXT, saslMechanism: ~, saslUsername: ~, saslPassword: ~";
const NO_LOGIN = "username: ~, password: ~, token: ~";

/** Entries with their required keys only, and their other keys with the defaults. */
const ENTRIES = `
- [destinations.x, { baseUrl: http://h }, { kind: http, path: /, timeoutMs: 30000, auth: ~, headers: {}, transform: ~, allowMetadataAddress: false }]
- [destinations.x, { url: amqp://h, exchange: e }, { kind: rabbitmq, exchangeFrom: ~, exchangeType: topic, declareExchange: true, routingKeyTemplate: "{{ topic }}", deliveryMode: persistent, headers: {}, transform: ~ }]
- [destinations.x, { bootstrapServers: b, topic: t }, { kind: kafka, topicFrom: ~, keyTemplate: "{{ key }}", timeoutMs: 30000, headers: {}, transform: ~, ${NO_SASL} }]
- [destinations.x, { servers: s, subject: t }, { kind: nats, subjectFrom: ~, jetStream: true, timeoutMs: 30000, headers: {}, transform: ~, ${NO_LOGIN} }]
- [destinations.x.auth, { baseUrl: http://h, auth: { clientId: c, clientSecret: s, tokenUrl: http://t } }, { kind: oauth2, scope: ~, extraParams: {} }]
- [destinations.x.auth, { baseUrl: http://h, auth: { username: u, password: p } }, { kind: basic }]
- [destinations.x.auth, { baseUrl: http://h, auth: { headerValue: v } }, { kind: header, headerName: Authorization }]
- [destinations.x.transform, { baseUrl: http://h, transform: { expression: a } }, { timeoutMs: 100, maxDepth: 100, onError: Fail }]
- [sources.x, { path: /p, idempotencyKeyPath: $.id, eventTypePath: $.t }, { kind: http, ${OF_SOURCES}: [$.t], topic: "{{ eventType }}", auth: ~ }]
- [sources.x, { queueName: q, connectionUrl: amqp://h }, { kind: rabbitmq, prefetchCount: 10, declareQueue: false, ${OF_BROKERS} }]
- [sources.x, { bootstrapServers: b, topics: [t], groupId: g }, { kind: kafka, autoOffsetReset: earliest, maxPollRecords: 100, ${NO_SASL}, ${OF_BROKERS} }]
- [sources.x, { servers: s, stream: t, durable: d }, { kind: nats, filterSubject: ~, ackWaitMs: 30000, batchSize: 100, idempotencyFrom: body, ${NO_LOGIN}, ${OF_BROKERS} }]
- [sources.x.auth, { ${SOURCE}, auth: { token: t } }, { kind: bearer }]
- [sources.x.auth, { ${SOURCE}, auth: { key: k } }, { kind: api-key, headerName: X-API-Key }]
- [sources.x.auth, { ${SOURCE}, auth: { secret: s } }, { kind: hmac, headerName: X-Signature, algorithm: HmacSHA256, signaturePrefix: sha256=, timestampHeader: ~, timestampTolerance: 300000, signaturePayloadFormat: BODY }]
- [sources.x.auth, { ${SOURCE}, auth: { secret: s, timestampHeader: T } }, { kind: hmac, signaturePayloadFormat: TIMESTAMP_DOT_BODY }]
- [sources.x.rateLimit, { ${SOURCE}, rateLimit: {} }, { requestsPerMinute: ~ }]
- [sources.x.filter, { ${SOURCE}, filter: {} }, { require: [], exclude: [] }]
`;

type Block = Readonly<Record<string, unknown>>;
const parsed = <T>(yaml: string) => parse(yaml, { schema: CORE_SCHEMA }) as T;
const at = (value: unknown, path: string) =>
  path.split(".").reduce<unknown>((holder, key) => (key === "" ? holder : (holder as Block)[key]), value);
/** The same keys of what was loaded; null for undefined. */
const sameOf = (expected: Block, loaded: unknown) =>
  Object.fromEntries(Object.keys(expected).map((key) => [key, (loaded as Block)[key] ?? null]));

describe("defaults", () => {
  test.each(Object.entries(parsed<Record<string, Block>>(SECTIONS)))("of %s are %j", (path, expected) => {
    expect(sameOf(expected, at(loadWith(""), path))).toEqual(expected);
  });

  test("of column names are those of the tables that the migrations make", () => {
    expect(loadWith("").database.columnMapping).toEqual({ outbox: OUTBOX_COLUMNS, inbox: INBOX_COLUMNS });
  });

  test.each(parsed<[string, Block, Block][]>(ENTRIES))("of %s with %j are %j", (path, entry, expected) => {
    const config = loadWith(`${path.split(".")[0]}: { x: ${JSON.stringify(entry)} }`);
    expect(sameOf(expected, at(config, path))).toEqual(expected);
  });

  test("a route sends an empty text for a placeholder without value, and lets rows go dead", () => {
    const config = loadWith(
      "destinations: { d: { baseUrl: http://h } }\nroutes: [{ topicPattern: '**', destination: d }]\n",
    );
    expect(config.routes[0]).toEqual({
      topicPattern: "**",
      destination: "d",
      routingKeyMissingFieldDefault: "",
      onExhausted: "dead",
    });
  });

  test("inbox.relay.maxAttempts follows outbox.maxAttempts", () => {
    expect(loadWith("outbox: { maxAttempts: 9 }\n").inbox.relay.maxAttempts).toBe(9);
    expect(loadWith("outbox: { maxAttempts: 9 }\ninbox: { relay: { maxAttempts: 2 } }\n").inbox.relay.maxAttempts).toBe(
      2,
    );
  });

  test("the capture connects with the password of the database unless it has its own", () => {
    const password = (yaml: string) => loadWith(yaml).outbox.capture.connection.password.reveal();
    expect(password("")).toBe("s3cret");
    expect(password("outbox: { capture: { connection: { password: own } } }\n")).toBe("own");
  });

  test("the configuration is frozen all the way down", () => {
    const config = loadWith("sources: { x: { path: p, idempotencyKeyPath: $.id, topic: t } }\n");
    for (const block of [config, config.database, config.database.target, config.sources, config.sources.x]) {
      expect(Object.isFrozen(block)).toBe(true);
    }
  });

  test("a source path gets its leading slash and a base path loses its trailing one", () => {
    const config = loadWith(
      "inbox: { basePath: in/ }\nsources: { x: { path: orders, idempotencyKeyPath: $.id, topic: t } }\n",
    );
    expect([config.inbox.basePath, config.sources.x]).toMatchObject(["/in", { path: "/orders" }]);
  });
});
