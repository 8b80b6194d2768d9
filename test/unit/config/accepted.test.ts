import { describe, expect, test } from "@jest/globals";
import {
  capture,
  DATABASE,
  database,
  http,
  inspect,
  kafka,
  LOGICAL,
  loadWith,
  nats,
  problemsOf,
  queue,
  source,
  warningsOf,
} from "./support.ts";

const signed = (format: string) => `{ secret: s, timestampHeader: X-Timestamp, ${format} }`;
const OPENS_TWO =
  "does not open the admin routes other than POST /admin/transform/test and POST /admin/replay: set it to sign " +
  "{{ timestamp }}, {{ method }}, {{ path }} and {{ body }}, as with timestamp-dot-request";

const routed = (pattern: string, keys: string) =>
  `${http("")}\nroutes: [{ topicPattern: '${pattern}', destination: d }]\nsources: { s: { path: /p, idempotencyKeyPath: $.id, ${keys} } }`;

describe("what does not stop the start", () => {
  test.each([
    `admin: { enabled: true, auth: ${signed("signaturePayloadFormat: timestamp-dot-request")} }`,
    `inbox: { pull: { enabled: true, auth: ${signed("signaturePayloadFormat: timestamp-dot-request")} } }`,
    `inbox: { pull: { enabled: true, auth: ${signed("signedText: '{{timestamp}}{{method}}{{ path }} {{body}}'")} } }`,
    "admin: { auth: { secret: s } }\ninbox: { pull: { auth: { secret: s } } }",
    "retention: { enabled: false, outbox: { policy: AGE } }",
    "retention: { enabled: true, outbox: { policy: COUNT, maxCount: 1 }, inbox: { policy: AGE, maxAge: 1d } }",
    capture(LOGICAL),
    capture("mode: postgres-logical"),
    "outbox: { capture: { enabled: false, stateDirectory: '' } }",
    kafka("timeoutMs: 2000"),
    http("concurrency: 8, rateLimit: { perSecond: 0.5 }, retry: {}, maxAttempts: 2147483647, circuitBreaker: {}"),
    kafka("rateLimit: { perSecond: 100000, burst: 100000 }, retry: { schedule: [0s, 7d], jitter: 0 }"),
    nats("rateLimit: { perSecond: 2.5, burst: 3 }, retry: { baseDelayMs: 1, factor: 1, maxDelayMs: 604800000 }"),
    "destinations: { d: { url: amqp://h, exchange: e, circuitBreaker: { openMs: 7, maxOpenMs: 7, failureRatio: 1 } } }",
    kafka("securityProtocol: SASL_SSL, saslMechanism: PLAIN, saslUsername: u, saslPassword: p"),
    nats("username: u, password: p"),
    "sources: { s: { servers: 'nats://a, tls://u:p@b:4222,[::1]:4222,', stream: t, durable: d } }",
    "sources: { s: { bootstrapServers: 'a:9092, [::1]:9092,c', topics: [t], groupId: g } }",
    queue("topic: 'q.{{ eventType }}', eventTypeFromHeader: true"),
    queue("topic: '{{ eventType }}', consumption: pull"),
    queue("topic: '', consumption: pull"),
    "sources: { s: { path: /p, idempotencyKeyExpression: 'a & b', eventTypeExpression: kind } }",
    queue("topic: '{{ eventType }}', eventTypeExpression: kind, aggregateIdExpression: $headers.account"),
    source(
      "filter: { require: [{ header: h, exists: true }, { header: h, equals: '' }], exclude: [{ header: h, in: [a] }] }",
    ),
    http("path: /a..b/.well-known/...?x=../y"),
    "destinations: { d: { url: amqp://h, exchange: '{{ topic }}.{{key}}.{{ aggregateType }}.{{ payload.a.b }}.{{ data.c }}', routingKeyTemplate: '{{ nope }}' } }",
    "sources: { a: { path: /p, idempotencyKeyPath: $.id, topic: t }, b: { path: /P/q, idempotencyKeyPath: $.id, topic: t } }",
    source("consumption: pull").replace("topic: t", "topic: ' '"),
    routed("b.*", "topic: '  b.c '"),
    routed("b.c.**", "topic: '{{ source }}.{{ eventType }}', eventTypePath: $.t").replace("s: { path", "b: { path"),
    routed("a", "topic: 'a {{ eventType }}', eventTypePath: $.t"),
    routed("a", "topic: b, consumption: pull"),
    `inbox: { relay: { enabled: false } }\n${routed("a", "topic: b")}`,
  ])("%s", (yaml) => {
    expect(problemsOf(`${yaml}\n`)).toEqual([]);
    expect(warningsOf(`${yaml}\n`)).toEqual([]);
  });

  test("renamed tables and columns with migrate: false", () => {
    const yaml = `${database("migrate: false")}\n  outboxTableName: events\n  columnMapping: { inbox: { headers: hdr } }\n`;
    expect(inspect(yaml)).toEqual({ problems: [], warnings: [] });
  });

  test("several hosts with a host to capture from", () => {
    const yaml = `${DATABASE.replace("db.internal:5432", "a,b")}${capture(`${LOGICAL}, connection: { hostname: a }`)}\n`;
    expect(inspect(yaml)).toEqual({ problems: [], warnings: [] });
  });

  test.each([
    ["outbox: { concurrency: 10 }", "database.poolSize: is 10 and should be larger than outbox.concurrency (10)"],
    [
      `outbox: { claimTimeoutMs: 30000 }\n${http("")}`,
      "outbox.claimTimeoutMs: is 30000 and should be larger than destinations.d.timeoutMs (30000)",
    ],
    ["inbox: { pull: { enabled: true } }", "inbox.pull.auth: is not set"],
    [
      "admin: { enabled: true, insecure: true, auth: { token: t } }",
      "admin.auth: has no effect: admin.insecure is true, so anybody can use the admin routes",
    ],
    ["admin: { enabled: true, auth: { secret: s } }", `admin.auth.signaturePayloadFormat: ${OPENS_TWO}`],
    [
      `admin: { enabled: true, auth: ${signed("signedText: '{{ timestamp }}.{{ method }}.{{ body }}'")} }`,
      `admin.auth.signedText: ${OPENS_TWO}`,
    ],
    [
      `inbox: { pull: { enabled: true, auth: ${signed("signaturePayloadFormat: TIMESTAMP_DOT_BODY")} } }`,
      "inbox.pull.auth.signaturePayloadFormat: does not open the pull routes: set it to sign {{ timestamp }}",
    ],
    [
      routed("a", "topic: b"),
      'sources.s.topic: is "b", which no route can match: every row would be dead at once; the patterns of routes are a',
    ],
    [routed("a.**", "topic: 'b.{{ eventType }}', eventTypePath: $.t"), "sources.s.topic: is"],
    [source("filter:"), "sources.s.filter: has no value and no effect"],
    [source("rateLimit:"), "sources.s.rateLimit: has no value and no effect"],
    [source("transform: ~"), "sources.s.transform: has no value and no effect"],
    [kafka("saslUsername: u"), "destinations.d.saslUsername: has no effect with securityProtocol PLAINTEXT"],
    [
      "destinations: { d: { url: 'http://u:pw@h', exchange: e } }",
      'destinations.d.url: expected an AMQP URI such as amqp://host:5672/vhost, found "http://u:***@h"',
    ],
  ])("%s is a warning, and an error when strict", (yaml, message) => {
    expect(warningsOf(`${yaml}\n`)).toEqual([expect.stringContaining(message)]);
    expect(problemsOf(`${yaml}\n`, { strict: true })).toEqual([expect.stringContaining(message)]);
  });

  test("rateLimit on a broker source is ignored", () => {
    expect(warningsOf(`${queue("rateLimit: { requestsPerMinute: 1 }")}\n`)).toEqual([]);
  });

  test("a cloud metadata address can be allowed for one destination", () => {
    expect(loadWith(`${http("allowMetadataAddress: true")}\n`).destinations.d).toMatchObject({
      allowMetadataAddress: true,
    });
  });
});
