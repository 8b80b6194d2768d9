import { generateKeyPairSync } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import { read } from "../../support/repository.ts";
import { capture, http, kafka, nats, problemsOf, queue, source } from "./support.ts";

const pem = (name: string) => JSON.stringify(read(`test/support/tls/${name}.pem`));
const LOCKED_KEY = JSON.stringify(
  generateKeyPairSync("ec", {
    namedCurve: "P-256",
    publicKeyEncoding: { type: "spki", format: "pem" },
    privateKeyEncoding: { type: "pkcs8", format: "pem", cipher: "aes-256-cbc", passphrase: "p" },
  }).privateKey,
);

/** What stops the start: the YAML behind the database section, the key path, and a part of the message. */
const REFUSED: readonly (readonly [string, string, string])[] = [
  ["server: { managementPort: 8080 }", "server.managementPort", "must differ from server.httpPort; both are 8080"],

  ["outbox: { capture: { identity: 1a } }", "outbox.capture.identity", "lower-case letters, digits and _"],
  [`outbox: { capture: { slot: ${"a".repeat(64)} } }`, "outbox.capture.slot", "at most 63 characters"],
  [capture("mode: sqlserver-cdc"), "outbox.capture.mode", "works with sqlserver only, and database.type is postgresql"],
  [capture("enabled: true, stateDirectory: /s"), "outbox.capture.mode", "must be postgres-logical or sqlserver-cdc"],
  [capture("enabled: true, mode: postgres-logical"), "outbox.capture.stateDirectory", "is required"],

  ["admin: { enabled: true }", "admin.auth", "is required when admin.enabled is true"],
  ["admin: { auth: { token: '' } }", "admin.auth.token", "must not be empty"],
  [
    source("auth: { secret: s, signaturePayloadFormat: timestamp-dot-body }"),
    "sources.s.auth.signaturePayloadFormat",
    "needs timestampHeader",
  ],
  [
    "admin: { auth: { secret: s, signaturePayloadFormat: timestamp-dot-request } }",
    "admin.auth.signaturePayloadFormat",
    "is timestamp-dot-request, which needs timestampHeader",
  ],
  [source("auth: { key: s, headerName: 'X Key' }"), "sources.s.auth.headerName", "expected a header name"],

  [
    "destinations: { d: { baseUrl: example.com } }",
    "destinations.d.baseUrl",
    'expected an absolute URL such as https://api.example.com; found "example.com"',
  ],
  ["destinations: { d: { baseUrl: 'ftp://h' } }", "destinations.d.baseUrl", "expected an absolute URL"],
  ["destinations: { d: { baseUrl: 'http://' } }", "destinations.d.baseUrl", "expected an absolute URL"],
  ["destinations: { d: { baseUrl: 'http://h /' } }", "destinations.d.baseUrl", "expected an absolute URL"],
  [
    "destinations: { d: { baseUrl: 'http://u:pw@h' } }",
    "destinations.d.baseUrl",
    'must hold no user name or password: put credentials into an auth block; found "http://u:***@h"',
  ],
  [
    http("auth: { clientId: c, clientSecret: s, tokenUrl: /token }"),
    "destinations.d.auth.tokenUrl",
    "expected an absolute URL",
  ],
  [
    http("rateLimit: { perSecond: 0 }"),
    "destinations.d.rateLimit.perSecond",
    "expected a number above 0 up to 100000, found 0",
  ],
  [http("rateLimit: { perSecond: 100000.5 }"), "destinations.d.rateLimit.perSecond", "up to 100000, found 100000.5"],
  [http("rateLimit: { perSecond: 1e3 }"), "destinations.d.rateLimit.perSecond", 'found "1e3"'],
  [
    http("rateLimit: { perSecond: 2.5, burst: 2 }"),
    "destinations.d.rateLimit.burst",
    "is 2 and must be at least 3, which is perSecond (2.5) rounded up",
  ],
  [source("initialDelay: soon"), "sources.s.initialDelay", "suffixes s, m, h, d"],
  [source("initialDelay: 366d"), "sources.s.initialDelay", "is longer than 365d"],
  [source("timeToLive: 366d"), "sources.s.timeToLive", "is longer than 365d, the longest life"],
  [source("timeToLive: 0s"), "sources.s.timeToLive", "must be longer than 0"],
  [source("timeToLive: 1h, initialDelay: 60m"), "sources.s.timeToLive", "must be longer than initialDelay"],
  [http("retry: { schedule: [5s, soon] }"), "destinations.d.retry.schedule[1]", "suffixes s, m, h, d"],
  [http("retry: { schedule: [5s, 8d] }"), "destinations.d.retry.schedule", "item 1 is longer than 7d"],
  [
    http("retry: { schedule: [5s], factor: 2 }"),
    "destinations.d.retry.factor",
    "cannot be combined with schedule, which sets every wait",
  ],
  [
    http("circuitBreaker: { openMs: 70000 }"),
    "destinations.d.circuitBreaker.maxOpenMs",
    "is 60000 and must be at least openMs (70000)",
  ],
  [http("path: /a/../b"), "destinations.d.path", 'must hold no "." or ".." segment; found "/a/../b"'],
  [http("path: ./b"), "destinations.d.path", 'must hold no "." or ".." segment'],
  [http("path: /a/%2E%2e"), "destinations.d.path", 'must hold no "." or ".." segment'],
  [http("path: '/a\\..\\b'"), "destinations.d.path", 'must hold no "." or ".." segment'],
  [http("headers: { 'a b': c }"), "destinations.d.headers", '"a b" is not a header name'],
  [http("path: '/a/{{ nothing }}'"), "destinations.d.path", "unknown placeholder {{ nothing }}"],
  [http("path: '/{{ key }}/..'"), "destinations.d.path", 'no "." or ".." segment'],
  [http("path: '/{{ key }}/a b'"), "destinations.d.path", "no blank"],
  [http("method: GET"), "destinations.d.method", "POST"],
  [
    http("successStatuses: [409, 410], deadStatuses: [410]"),
    "destinations.d.deadStatuses",
    "has 410, as successStatuses has",
  ],
  [
    http("batch: {}, cloudEvents: { source: /s }"),
    "destinations.d.batch",
    "cannot carry binary events, whose attributes are headers: set cloudEvents.mode: structured",
  ],
  [
    http("signing: { scheme: hmac, secrets: [s], headerName: authorization }, auth: { username: u, password: p }"),
    "destinations.d.signing",
    "sends the header authorization, which auth sends too",
  ],
  [
    http(
      "signing: { scheme: standard-webhooks, secrets: [c2VjcmV0] }, auth: { headerName: Webhook-Id, headerValue: v }",
    ),
    "destinations.d.signing",
    "sends the header webhook-id, which auth sends too",
  ],
  [
    http("signing: { scheme: standard-webhooks, secrets: ['no base64'] }"),
    "destinations.d.signing.secrets",
    "has a secret that is not base64: standard-webhooks needs base64",
  ],
  [
    http("signing: { scheme: hmac, secrets: [a], timestampHeader: x-signature }"),
    "destinations.d.signing.timestampHeader",
    "is the header of the signature too",
  ],
  [
    http("tls: { certificate: '-----BEGIN CERTIFICATE-----' }"),
    "destinations.d.tls.key",
    "is required with certificate",
  ],
  [
    http(`tls: { certificate: ${pem("server")}, key: ${pem("client.key")} }`),
    "destinations.d.tls",
    "key values mismatch",
  ],
  [http(`tls: { certificate: ${pem("server")}, key: ${LOCKED_KEY} }`), "destinations.d.tls", "cannot be used"],
  [http("tls: { ca: /etc/ca.pem }"), "destinations.d.tls.ca", "file:<path> reads it"],
  [http("proxy: proxy.example:3128"), "destinations.d.proxy", "such as http://proxy.internal:3128"],
  [
    http('headers: { a: "b\\nc" }'),
    "destinations.d.headers",
    'the value of "a" holds a character that no HTTP header can carry',
  ],

  [
    "destinations: { d: { url: amqp://h, exchange: 'x.{{ nope }}' } }",
    "destinations.d.exchange",
    "unknown placeholder {{ nope }}",
  ],
  [kafka("topicFrom: aggregateType"), "destinations.d.topicFrom", 'did you mean "aggregate_type"?'],
  [
    kafka("securityProtocol: SASL_SSL, saslUsername: u, saslPassword: p"),
    "destinations.d.saslMechanism",
    "is required by securityProtocol SASL_SSL",
  ],
  [
    "sources: { s: { bootstrapServers: b, topics: [t], groupId: g, securityProtocol: SASL_SSL, saslMechanism: PLAIN, saslUsername: u } }",
    "sources.s.saslPassword",
    "is required",
  ],
  ["sources: { s: { bootstrapServers: b, topics: [a, ' '], groupId: g } }", "sources.s.topics[1]", "must not be blank"],
  [nats("username: u"), "destinations.d.password", "is required by username"],
  [nats("password: p"), "destinations.d.username", "is required by password"],
  [nats("token: t, username: u, password: p"), "destinations.d.token", "set a token or a user name, not both"],
  [
    "sources: { s: { servers: 'nats://a:4222,http://u:hidden@b', stream: t, durable: d } }",
    "sources.s.servers",
    "entry 2 of the list is not a server: expected nats://host:port",
  ],
  ["destinations: { d: { servers: 'a:70000', subject: t } }", "destinations.d.servers", "entry 1 of the list"],
  [
    "destinations: { d: { bootstrapServers: 'PLAINTEXT://a:9092', topic: t } }",
    "destinations.d.bootstrapServers",
    "entry 1 of the list is not a server: expected host:port, without a scheme",
  ],

  [
    `${http("")}\nroutes: [{ topicPattern: a, destination: e }]`,
    "routes[0].destination",
    'names no destination: there are d; found "e"; did you mean "d"?',
  ],
  ["routes: [{ topicPattern: a, destination: e }]", "routes[0].destination", "names no destination: there are none"],
  [`${http("")}\nroutes: [{ topicPattern: 'a.***', destination: d }]`, "routes[0].topicPattern", "*** at character 3"],

  [
    http("transform: { expression: 'a +' }"),
    "destinations.d.transform.expression",
    "does not compile: Unexpected end of expression",
  ],

  [source("aggregateIdPath: $..orderId"), "sources.s.aggregateIdPath", "is not a definite JSONPath"],
  [source("eventTypePath: [$.type, '$.items[*].t']"), "sources.s.eventTypePath[1]", "is not a definite JSONPath"],
  [source("eventTypePath: [$..type]"), "sources.s.eventTypePath", "is not a definite JSONPath"],
  [source("eventTypePath: [$.type, ~]"), "sources.s.eventTypePath[1]", "expected text, found nothing"],
  [
    "sources: { s: { path: /p, idempotencyKeyPath: id, topic: t } }",
    "sources.s.idempotencyKeyPath",
    "is not a definite JSONPath",
  ],
  [
    "sources: { s: { path: /p, idempotencyKeyPath: $.id } }",
    "sources.s.eventTypePath",
    'is required by the topic "{{ eventType }}" of a push source',
  ],
  [queue("topic: 'q.{{eventType}}'"), "sources.s.eventTypePath", "needs eventTypePath, or eventTypeFromHeader: true"],
  [queue("topic: ' '"), "sources.s.topic", "must not be blank on a push source"],
  [queue("topic: '{{ topic }}'"), "sources.s.topic", "unknown placeholder {{ topic }}"],
  [
    "sources: { s: { path: /s, topic: t, cloudEvents: false } }",
    "sources.s.idempotencyKeyPath",
    "is required without idempotencyKeyHeader, idempotencyKeyExpression, auth.provider and cloudEvents: true",
  ],
  [source("idempotencyKeyExpression: '$uppercase('"), "sources.s.idempotencyKeyExpression", "does not compile: "],
  [source("idempotencyKeyHeader: X-Api-Key"), "sources.s.idempotencyKeyHeader", "which carries credentials"],
  [source("scheduledAtHeader: X-Api-Key"), "sources.s.scheduledAtHeader", "which carries credentials"],
  [source("deliverAtHeader: X-Api-Key"), "sources.s.deliverAtHeader", "which carries credentials"],
  [source("deliverAtPath: '$..due'"), "sources.s.deliverAtPath", "JSONPath"],
  [source("eventTypeHeader: authorization"), "sources.s.eventTypeHeader", "which carries credentials"],
  [
    source("auth: { secret: s, headerName: X-Sum }, aggregateIdHeader: x-sum"),
    "sources.s.aggregateIdHeader",
    'is "x-sum", which carries credentials',
  ],
  [
    source(
      "auth: { certificateHeader: X-Cert, trustedProxies: [10.0.0.0/8], commonNames: [a] }, idempotencyKeyHeader: x-cert",
    ),
    "sources.s.idempotencyKeyHeader",
    'is "x-cert", which carries credentials',
  ],
  [source("aggregateIdHeader: X-Correlation-Id"), "sources.s.aggregateIdHeader", "is stored as the correlation id"],

  [
    source("filter: { require: [{ header: h }] }"),
    "sources.s.filter.require[0]",
    "expected exactly one of equals, in, matches, exists; found none",
  ],
  [
    source("filter: { exclude: [{ header: h, equals: a, in: [b] }] }"),
    "sources.s.filter.exclude[0]",
    "found equals and in",
  ],
  [
    source("filter: { exclude: [{ header: h, exists: false }] }"),
    "sources.s.filter.exclude[0].exists",
    "must not be false",
  ],
  [
    source("filter: { require: [{ header: h, matches: 'a.***' }] }"),
    "sources.s.filter.require[0].matches",
    "is not a topic pattern",
  ],

  [
    "sources: { a: { path: /p, idempotencyKeyPath: $.id, topic: t }, b: { path: p, idempotencyKeyPath: $.id, topic: t } }",
    "sources.b.path",
    'is the path of sources.a too: "p"',
  ],
  [
    `inbox: { basePath: / }\n${source("").replace("/p", "/health/live")}`,
    "sources.s.path",
    "gives /health/live with inbox.basePath",
  ],
  [
    `inbox: { basePath: /admin }\n${source("").replace("/p", "/replay")}`,
    "sources.s.path",
    "a path of the service itself",
  ],
  [
    `inbox: { basePath: /admin }\n${source("").replace("/p", "/parked/retry/")}`,
    "sources.s.path",
    "gives /admin/parked/retry with inbox.basePath",
  ],
  [
    `inbox: { basePath: /admin/destinations }\n${source("").replace("/p", "/billing/pause")}`,
    "sources.s.path",
    "a path of the service itself",
  ],
  [
    `inbox: { basePath: '', pull: { enabled: true, auth: { token: t } } }\n${source("").replace("/p", "/pull/x/ack")}`,
    "sources.s.path",
    "a path of the service itself",
  ],
  [source("").replace("/p", "/p?a=b"), "sources.s.path", "must not contain ? or #"],
  [source("").replace("/p", "/p/../q"), "sources.s.path", 'no "." or ".." segment'],

  ["retention: { enabled: true, outbox: { policy: AGE } }", "retention.outbox.maxAge", "is required by the policy AGE"],
  [
    "retention: { enabled: true, outbox: { policy: COUNT } }",
    "retention.outbox.maxCount",
    "is required by the policy COUNT",
  ],
  ["retention: { enabled: true, inbox: { policy: AGE } }", "retention.inbox.maxAge", "is required by the policy AGE"],
  [
    "retention: { enabled: true, inbox: { cleanupInterval: 0h } }",
    "retention.inbox.cleanupInterval",
    "must be longer than 0",
  ],
];

describe("what stops the start", () => {
  test.each(REFUSED)("%s", (yaml, path, message) => {
    const problems = problemsOf(`${yaml}\n`);
    expect(problems).toEqual([expect.stringContaining(message)]);
    expect(problems[0]?.split(": ", 1)).toEqual([path]);
  });

  test("everything is reported at once, rules over several keys included", () => {
    const yaml = "server: { managementPort: 8080 }\nadmin: { enabled: true }\nretention: { enabled: 1 }\n";
    const paths = problemsOf(`${yaml}http: { maxErrorBodyBytes: x }\n`).map((line) => line.split(": ", 1)[0]);
    expect(paths.sort()).toEqual([
      "admin.auth",
      "http.maxErrorBodyBytes",
      "retention.enabled",
      "server.managementPort",
    ]);
  });

  test("a rule says nothing about keys that are wrong on their own", () => {
    expect(problemsOf("admin: { enabled: maybe }\n")).toEqual([
      expect.stringContaining("admin.enabled: expected true or false"),
    ]);
    expect(problemsOf(`${kafka("securityProtocol: SASL")}\n`)).toEqual([
      expect.stringContaining("destinations.d.securityProtocol"),
    ]);
  });
});
