import { describe, expect, test } from "@jest/globals";
import { loadWith, problemsOf, warningsOf } from "./support.ts";

const http = (auth: string) => `destinations: { x: { baseUrl: http://h, auth: { ${auth} } } }`;
const source = (auth: string) => `sources: { x: { path: /p, idempotencyKeyPath: $.id, topic: t, auth: { ${auth} } } }`;

/** Every row of the specification's table of kinds. */
const KINDS: readonly (readonly [string, string, (config: ReturnType<typeof loadWith>) => unknown])[] = [
  ["http", "destinations: { x: { baseUrl: http://h } }", (config) => config.destinations.x],
  ["rabbitmq", "destinations: { x: { url: amqp://h, exchange: e } }", (config) => config.destinations.x],
  ["kafka", "destinations: { x: { bootstrapServers: b, topic: t } }", (config) => config.destinations.x],
  ["nats", "destinations: { x: { servers: s, subject: t } }", (config) => config.destinations.x],
  ["http", "sources: { x: { path: /p, idempotencyKeyPath: $.id, topic: t } }", (config) => config.sources.x],
  ["rabbitmq", "sources: { x: { queueName: q, connectionUrl: amqp://h } }", (config) => config.sources.x],
  ["kafka", "sources: { x: { bootstrapServers: b, topics: [t], groupId: g } }", (config) => config.sources.x],
  ["nats", "sources: { x: { servers: s, stream: t, durable: d } }", (config) => config.sources.x],
  ["oauth2", http("clientId: c, clientSecret: s, tokenUrl: http://t"), destinationAuth],
  ["basic", http("username: u, password: p"), destinationAuth],
  ["bearer", http("type: bearer, token: t"), destinationAuth],
  ["api-key", http("type: api-key, key: k"), destinationAuth],
  ["header", http("headerValue: v"), destinationAuth],
  ["bearer", source("token: t"), (config) => (config.sources.x as { auth?: unknown }).auth],
  ["api-key", source("key: k"), (config) => (config.sources.x as { auth?: unknown }).auth],
  ["hmac", source("secret: s"), (config) => (config.sources.x as { auth?: unknown }).auth],
  ["bearer", "admin: { auth: { token: t } }", (config) => config.admin.auth],
  ["api-key", "admin: { auth: { key: k } }", (config) => config.admin.auth],
  ["hmac", "inbox: { pull: { auth: { secret: s } } }", (config) => config.inbox.pull.auth],
];

function destinationAuth(config: ReturnType<typeof loadWith>): unknown {
  return (config.destinations.x as { auth?: unknown }).auth;
}

describe("the kind of an entry", () => {
  test.each(KINDS)("%s follows from the required keys: %s", (kind, yaml, pick) => {
    expect(pick(loadWith(`${yaml}\n`))).toMatchObject({ kind });
  });

  test("does not follow from a wrong type, which is a warning", () => {
    const yaml = "destinations: { x: { type: kafka, baseUrl: http://h } }\n";
    expect(loadWith(yaml).destinations.x).toMatchObject({ kind: "http" });
    expect(loadWith(yaml).destinations.x).not.toHaveProperty("type");
    expect(warningsOf(yaml)).toEqual([
      'destinations.x.type: has no effect: the keys that are set make this entry http, not "kafka" (svc.yml, line 5)',
    ]);
  });

  test("a type that is right is no warning", () => {
    expect(warningsOf("destinations: { x: { type: http, baseUrl: http://h } }\n")).toEqual([]);
    expect(warningsOf("admin: { auth: { type: api-key, key: k } }\n")).toEqual([]);
  });

  test("a required key without value does not count as present", () => {
    const yaml = "destinations: { x: { baseUrl: , url: amqp://h, exchange: e } }\n";
    expect(loadWith(yaml).destinations.x).toMatchObject({ kind: "rabbitmq" });
  });

  test("with the keys of two kinds the first of the table counts, and a warning says so", () => {
    const yaml = "admin: { auth: { token: t, key: k } }\n";
    expect(loadWith(yaml).admin.auth).toMatchObject({ kind: "bearer" });
    expect(warningsOf(yaml)).toEqual([
      "admin.auth: has keys of bearer and api-key and is read as bearer: remove the others (svc.yml, line 5)",
      "admin.auth.key: is ignored here: it is a key of the kind api-key (svc.yml, line 5)",
    ]);
  });
});

describe("an entry that fits no kind", () => {
  const LIST =
    "no kind fits; the required keys decide the kind: http needs baseUrl; rabbitmq needs url and exchange; kafka needs bootstrapServers and topic; nats needs servers and subject";

  test.each([
    ["{ url: amqp://h }", ". Nearest is rabbitmq: exchange is missing"],
    ["{ baseurl: http://h }", '. Nearest is http: baseUrl is missing (is "baseurl" meant to be "baseUrl"?)'],
    ["{}", ""],
    ["", ""],
  ])("%s says which kinds there are and what is missing", (entry, nearest) => {
    expect(problemsOf(`destinations: { x: ${entry} }\n`)).toEqual([
      `destinations.x: ${LIST}${nearest} (svc.yml, line 5)`,
    ]);
  });

  test.each([
    ["{ type: kafka }", "x: cannot be of the kind kafka: bootstrapServers and topic are missing"],
    ["{ type: Rabbit-MQ, baseurl: u, url: u }", "x: cannot be of the kind rabbitmq: exchange is missing"],
    [
      "{ baseUrl: http://h, auth: { type: bearer, value: t } }",
      "x.auth: cannot be of the kind bearer: token is missing",
    ],
    [
      "{ baseUrl: http://h, auth: { type: api-key, keys: t, username: u } }",
      'x.auth: cannot be of the kind api-key: key is missing (is "keys" meant to be "key"?)',
    ],
  ])("%s says what the kind lacks that its type names", (entry, problem) => {
    expect(problemsOf(`destinations: { x: ${entry} }\n`)).toEqual([`destinations.${problem} (svc.yml, line 5)`]);
  });

  test("is still a destination that a route can name", () => {
    const yaml = "destinations: { x: {} }\nroutes: [{ topicPattern: '**', destination: x }]\n";
    expect(problemsOf(yaml)).toEqual([expect.stringContaining("destinations.x: no kind fits")]);
  });

  test("an auth block names its own kinds", () => {
    expect(problemsOf("admin: { enabled: true, auth: { headerName: X } }\n")).toEqual([
      "admin.auth: no kind fits; the required keys decide the kind: provider needs provider; client-certificate needs certificateHeader and trustedProxies; bearer needs token or tokens; api-key needs key or keys; hmac needs secret or secrets. Nearest is api-key: key or keys is missing (svc.yml, line 5)",
    ]);
  });
});

test("a client certificate is for sources, with somebody that it names", () => {
  const auth = "auth: { certificateHeader: X-C, trustedProxies: [10.0.0.0/40] }";
  const source = `sources: { x: { path: /p, idempotencyKeyPath: $.id, topic: t, ${auth} } }\n`;
  expect(
    problemsOf(`${source}admin: { enabled: true, auth: { certificateHeader: X-C, trustedProxies: ["::1"] } }\n`),
  ).toEqual(
    expect.arrayContaining([
      expect.stringContaining('sources.x.auth.trustedProxies: is "10.0.0.0/40": an address or a network is expected'),
      expect.stringContaining("sources.x.auth.certificateHeader: needs one of fingerprints, commonNames"),
      expect.stringContaining("admin.auth.certificateHeader: is for sources"),
    ]),
  );
});

describe("an auth block without a value is refused, since the door would stand open", () => {
  test.each([
    ["sources: { x: { path: /p, idempotencyKeyPath: $.id, topic: t, auth: } }", "sources.x.auth"],
    ["sources: { x: { path: /p, idempotencyKeyPath: $.id, topic: t, auth: ~ } }", "sources.x.auth"],
    ["sources: { x: { path: /p, idempotencyKeyPath: $.id, topic: t, auth: null } }", "sources.x.auth"],
    ["inbox: { pull: { enabled: true, auth: } }", "inbox.pull.auth"],
    ["admin: { enabled: true, insecure: true, auth: }", "admin.auth"],
    ["destinations: { d: { baseUrl: http://h, auth: } }", "destinations.d.auth"],
  ])("%s", (yaml, path) => {
    expect(problemsOf(`${yaml}\n`)).toEqual([expect.stringContaining(`${path}: has no value: set the keys of one of`)]);
  });

  test.each([
    ["a block without keys", "auth: {}", {}],
    ["a token without a value", "auth: { token: }", {}],
    ["an empty token", "auth: { token: '' }", {}],
    ["a placeholder of an empty variable", `auth: { token: '\${TOKEN}' }`, { TOKEN: "" }],
    ["an empty variable", "auth: { type: bearer }", { SVC_SOURCES_X_AUTH_TOKEN: "" }],
    ["an empty variable alone", "consumption: push", { SVC_SOURCES_X_AUTH_TOKEN: "" }],
  ])("%s", (_what, keys, env) => {
    const yaml = `sources: { x: { path: /p, idempotencyKeyPath: $.id, topic: t, ${keys} } }\n`;
    expect(problemsOf(yaml, { env })).toEqual([expect.stringContaining("sources.x.auth")]);
  });

  test("unless a variable gives it one", () => {
    const yaml = "sources: { x: { path: /p, idempotencyKeyPath: $.id, topic: t, auth: } }\n";
    expect(problemsOf(yaml, { env: { SVC_SOURCES_X_AUTH_TOKEN: "t" } })).toEqual([]);
  });
});
