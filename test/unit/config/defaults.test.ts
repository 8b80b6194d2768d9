import { describe, expect, test } from "@jest/globals";
import { INBOX_COLUMNS, OUTBOX_COLUMNS } from "../../../src/model/rows.ts";
import { loadWith } from "./support.ts";

/** The tables of the specification: key path and default; undefined for "none". */
const SECTION_DEFAULTS: readonly (readonly [string, unknown])[] = [
  ["server.httpPort", 8080],
  ["server.managementPort", undefined],
  ["database.type", "postgresql"],
  ["database.poolSize", 10],
  ["database.connectionTimeoutMs", 30000],
  ["database.startupTimeoutMs", 60000],
  ["database.migrate", true],
  ["database.outboxTableName", "outbox"],
  ["database.inboxTableName", "inbox"],
  ["database.columnMapping.outbox", OUTBOX_COLUMNS],
  ["database.columnMapping.inbox", INBOX_COLUMNS],
  ["outbox.pollIntervalMs", 100],
  ["outbox.batchSize", 100],
  ["outbox.concurrency", 8],
  ["outbox.retryBaseDelayMs", 1000],
  ["outbox.maxAttempts", 5],
  ["outbox.claimTimeoutMs", 300000],
  ["outbox.pendingGaugeIntervalMs", 5000],
  ["outbox.shutdownTimeoutMs", 30000],
  ["outbox.capture.mode", "polling"],
  ["outbox.capture.enabled", false],
  ["outbox.capture.identity", "svc"],
  ["outbox.capture.stateDirectory", ""],
  ["outbox.capture.schema", "public"],
  ["outbox.capture.publication", "svc_outbox"],
  ["outbox.capture.slot", "svc_outbox"],
  ["outbox.capture.reconciliationIntervalMs", 1000],
  ["outbox.capture.connection.hostname", "db.internal"],
  ["outbox.capture.connection.port", 5432],
  ["outbox.capture.connection.database", "svc"],
  ["outbox.capture.connection.username", "svc"],
  ["outbox.capture.connection.encrypt", true],
  ["outbox.capture.connection.trustServerCertificate", false],
  ["inbox.basePath", "/inbox"],
  ["inbox.maxBodyBytes", 1048576],
  ["inbox.relay.enabled", true],
  ["inbox.relay.pollIntervalMs", 100],
  ["inbox.relay.batchSize", 100],
  ["inbox.relay.claimTimeoutMs", 300000],
  ["inbox.relay.pendingGaugeIntervalMs", 5000],
  ["inbox.relay.maxAttempts", 5],
  ["inbox.pull.enabled", false],
  ["inbox.pull.auth", undefined],
  ["inbox.pull.basePath", "/pull"],
  ["inbox.pull.leaseMs", 30000],
  ["inbox.pull.maxAttempts", 5],
  ["http.maxErrorBodyBytes", 2048],
  ["http.blockPrivateAddresses", false],
  ["admin.enabled", false],
  ["admin.auth", undefined],
  ["admin.insecure", false],
  ["admin.maxTransformTimeoutMs", 1000],
  ["admin.maxPayloadBytes", 65536],
  ["destinations", {}],
  ["routes", []],
  ["sources", {}],
  ["retention.enabled", false],
  ["retention.outbox.policy", "DISABLED"],
  ["retention.outbox.maxAge", undefined],
  ["retention.outbox.maxCount", undefined],
  ["retention.outbox.cleanupInterval", 3_600_000],
  ["retention.outbox.batchSize", 1000],
  ["retention.inbox.policy", "DISABLED"],
  ["retention.inbox.maxAge", undefined],
  ["retention.inbox.cleanupInterval", 3_600_000],
  ["retention.inbox.batchSize", 1000],
];

const COMMON_SOURCE = {
  consumption: "push",
  keyScope: "shared",
  aggregateIdPath: undefined,
  eventTypePath: undefined,
  transform: undefined,
  filter: undefined,
  rateLimit: undefined,
};
const BROKER_SOURCE = {
  ...COMMON_SOURCE,
  topic: "{{ source }}",
  idempotencyKeyPath: ["$.id"],
  eventTypeFromHeader: false,
  required: true,
  attributeHeaders: { idempotencyKey: "x-idempotency-key", aggregateId: "x-aggregate-id", eventType: "x-event-type" },
};
const NO_SASL = {
  securityProtocol: "PLAINTEXT",
  saslMechanism: undefined,
  saslUsername: undefined,
  saslPassword: undefined,
};
const NO_NATS_CREDENTIALS = { username: undefined, password: undefined, token: undefined };
const COMMON_DESTINATION = { headers: {}, transform: undefined };

/** Entries with their required keys only, and every other key with its default. */
const ENTRY_DEFAULTS: readonly (readonly [string, string, Readonly<Record<string, unknown>>])[] = [
  [
    "destinations.x",
    "{ baseUrl: http://h }",
    { kind: "http", path: "/", timeoutMs: 30000, auth: undefined, allowMetadataAddress: false, ...COMMON_DESTINATION },
  ],
  [
    "destinations.x",
    "{ url: amqp://h, exchange: e }",
    {
      kind: "rabbitmq",
      exchangeFrom: undefined,
      exchangeType: "topic",
      routingKeyTemplate: "{{ topic }}",
      deliveryMode: "persistent",
      ...COMMON_DESTINATION,
    },
  ],
  [
    "destinations.x",
    "{ bootstrapServers: b, topic: t }",
    {
      kind: "kafka",
      topicFrom: undefined,
      keyTemplate: "{{ key }}",
      timeoutMs: 30000,
      ...NO_SASL,
      ...COMMON_DESTINATION,
    },
  ],
  [
    "destinations.x",
    "{ servers: s, subject: t }",
    {
      kind: "nats",
      subjectFrom: undefined,
      jetStream: true,
      timeoutMs: 30000,
      ...NO_NATS_CREDENTIALS,
      ...COMMON_DESTINATION,
    },
  ],
  [
    "destinations.x.auth",
    "{ baseUrl: http://h, auth: { clientId: c, clientSecret: s, tokenUrl: http://t } }",
    { kind: "oauth2", scope: undefined, extraParams: {} },
  ],
  ["destinations.x.auth", "{ baseUrl: http://h, auth: { username: u, password: p } }", { kind: "basic" }],
  [
    "destinations.x.auth",
    "{ baseUrl: http://h, auth: { headerValue: v } }",
    { kind: "header", headerName: "Authorization" },
  ],
  [
    "destinations.x.transform",
    "{ baseUrl: http://h, transform: { expression: a } }",
    { timeoutMs: 100, maxDepth: 100, onError: "Fail" },
  ],
  [
    "sources.x",
    "{ path: /p, idempotencyKeyPath: $.id, eventTypePath: $.t }",
    { kind: "http", ...COMMON_SOURCE, eventTypePath: ["$.t"], topic: "{{ eventType }}", auth: undefined },
  ],
  [
    "sources.x",
    "{ queueName: q, connectionUrl: amqp://h }",
    { kind: "rabbitmq", prefetchCount: 10, declareQueue: false, ...BROKER_SOURCE },
  ],
  [
    "sources.x",
    "{ bootstrapServers: b, topics: [t], groupId: g }",
    { kind: "kafka", autoOffsetReset: "earliest", maxPollRecords: 100, ...NO_SASL, ...BROKER_SOURCE },
  ],
  [
    "sources.x",
    "{ servers: s, stream: t, durable: d }",
    {
      kind: "nats",
      filterSubject: undefined,
      ackWaitMs: 30000,
      batchSize: 100,
      idempotencyFrom: "body",
      ...NO_NATS_CREDENTIALS,
      ...BROKER_SOURCE,
    },
  ],
  ["sources.x.auth", source("auth: { token: t }"), { kind: "bearer" }],
  ["sources.x.auth", source("auth: { key: k }"), { kind: "api-key", headerName: "X-API-Key" }],
  [
    "sources.x.auth",
    source("auth: { secret: s }"),
    {
      kind: "hmac",
      headerName: "X-Signature",
      algorithm: "HmacSHA256",
      signaturePrefix: "sha256=",
      timestampHeader: undefined,
      timestampTolerance: 300000,
      signaturePayloadFormat: "BODY",
    },
  ],
  [
    "sources.x.auth",
    source("auth: { secret: s, timestampHeader: T }"),
    { kind: "hmac", signaturePayloadFormat: "TIMESTAMP_DOT_BODY" },
  ],
  ["sources.x.rateLimit", source("rateLimit: {}"), { requestsPerMinute: undefined }],
  ["sources.x.filter", source("filter: {}"), { require: [], exclude: [] }],
];

function source(extra: string): string {
  return `{ path: /p, idempotencyKeyPath: $.id, topic: t, ${extra} }`;
}

function at(value: unknown, path: string): unknown {
  return path.split(".").reduce<unknown>((holder, key) => (holder as Record<string, unknown>)[key], value);
}

describe("defaults", () => {
  test.each(SECTION_DEFAULTS)("%s is %j when it is not set", (path, expected) => {
    expect(at(loadWith(""), path)).toEqual(expected);
  });

  test.each(ENTRY_DEFAULTS)("%s with %s gets the other keys", (path, entry, expected) => {
    const yaml = `${path.split(".")[0]}:\n  x: ${entry}\n`;
    const loaded = at(loadWith(yaml), path) as Record<string, unknown>;
    for (const [key, value] of Object.entries(expected)) expect([key, loaded[key]]).toEqual([key, value]);
  });

  test("an entry has no other keys than those the tables name", () => {
    const [, , ...rest] = ENTRY_DEFAULTS.filter(([path]) => path === "sources.x");
    for (const [path, entry, expected] of rest) {
      const loaded = at(loadWith(`sources:\n  x: ${entry}\n`), path) as object;
      const given = [...entry.matchAll(/[{,] (\w+):/g)].map((match) => match[1] ?? "");
      expect(Object.keys(loaded).filter((key) => !given.includes(key) && !(key in expected))).toEqual([]);
    }
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
