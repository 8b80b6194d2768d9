import { describe, expect, test } from "@jest/globals";
import { inspectConfig, loadConfig } from "../../../src/config/load.ts";
import { secretsOf } from "../../../src/config/mask.ts";
import { effectiveConfig, printConfig } from "../../../src/config/print.ts";
import { maskUrl, maskUrls, passwordsInUrl } from "../../../src/model/secret.ts";
import { DATABASE, disk, loadWith } from "./support.ts";

/** Every place that can hold a credential, each with a value of its own. */
const SECRETS = {
  database: "hidden-database",
  capture: "hidden-capture",
  admin: "hidden-admin",
  pull: "hidden-pull",
  bearer: "hidden-bearer",
  apiKey: "hidden-api-key",
  hmac: "hidden-hmac",
  oauth: "hidden-oauth",
  assertion: "hidden-assertion",
  basic: "hidden-basic",
  header: "hidden-header",
  static: "hidden-static",
  amqp: "hidden-amqp",
  amqpSource: "hidden@amqp/source",
  sasl: "hidden-sasl",
  saslSource: "hidden-sasl-source",
  nats: "hidden-nats",
  natsUrl: "hidden-nats-url",
  natsToken: "hidden-nats-token",
  file: "hidden-file",
};

const COMPLETE = `
database: { url: "jdbc:postgresql://h/d", username: svc, password: ${SECRETS.database} }
outbox: { capture: { connection: { password: ${SECRETS.capture} } } }
inbox: { pull: { enabled: true, auth: { key: ${SECRETS.pull} } } }
admin: { enabled: true, auth: { token: ${SECRETS.admin} } }
sources:
  a: { path: /a, idempotencyKeyPath: $.id, topic: t, auth: { token: ${SECRETS.bearer} } }
  b: { path: /b, idempotencyKeyPath: $.id, topic: t, auth: { key: ${SECRETS.apiKey} } }
  c: { path: /c, idempotencyKeyPath: $.id, topic: t, auth: { secret: ${SECRETS.hmac} } }
  d: { queueName: q, connectionUrl: "amqp://user:${SECRETS.amqpSource}@h:5672/v" }
  e: { bootstrapServers: b, topics: [t], groupId: g, securityProtocol: SASL_SSL, saslMechanism: PLAIN, saslUsername: u, saslPassword: ${SECRETS.saslSource} }
  f: { servers: "nats://user:${SECRETS.natsUrl}@a:4222,nats://${SECRETS.natsToken}@b:4222", stream: s, durable: d }
destinations:
  a: { baseUrl: http://h, auth: { clientId: c, clientSecret: ${SECRETS.oauth}, tokenUrl: http://t, extraParams: { client_assertion: ${SECRETS.assertion}, audience: visible-audience } } }
  b: { baseUrl: http://h, auth: { username: user, password: ${SECRETS.basic} }, headers: { X-Api-Key: ${SECRETS.static}, X-Tenant: visible-tenant } }
  c: { baseUrl: http://h, auth: { headerValue: Bearer ${SECRETS.header} } }
  d: { url: "amqps://user:${SECRETS.amqp}@h/v", exchange: e }
  e: { bootstrapServers: b, topic: t, securityProtocol: SASL_SSL, saslMechanism: PLAIN, saslUsername: u, saslPassword: ${SECRETS.sasl} }
  f: { servers: s, subject: t, username: u, password: ${SECRETS.nats} }
  g: { servers: s, subject: t, token: "file:/run/token" }
`;

const options = (yaml: string) => ({
  env: {},
  file: "svc.yml",
  readFile: disk({ "svc.yml": yaml, "/run/token": `${SECRETS.file}\n` }),
});

function leaksIn(text: string): string[] {
  return Object.values(SECRETS).filter((secret) => text.includes(secret));
}

describe("no secret is shown", () => {
  test("in what is printed, logged or made JSON of the configuration", () => {
    const loaded = loadConfig(options(COMPLETE));
    const printed = printConfig(loaded);
    expect(leaksIn(printed)).toEqual([]);
    expect(leaksIn(JSON.stringify(effectiveConfig(loaded)))).toEqual([]);
    expect(leaksIn(JSON.stringify([...loaded.origins, loaded.warnings]))).toEqual([]);
    expect(printed).toContain("visible-tenant");
    expect(printed).toContain("visible-audience");
    expect(printed).toContain("amqps://user:***@h/v");
    expect(printed).toContain("nats://user:***@a:4222,nats://***@b:4222");
  });

  test("an empty secret shows as empty", () => {
    const config = loadWith("destinations: { d: { baseUrl: http://h, auth: { username: u, password: '' } } }\n");
    expect(JSON.stringify(effectiveConfig({ config }))).toContain('"password":"Secret(empty)"');
  });
});

describe("secretsOf", () => {
  test("gives every secret value, the longest first", () => {
    const secrets = secretsOf(loadConfig(options(COMPLETE)).config);
    for (const secret of Object.values(SECRETS)) expect(secrets).toContain(secret);
    expect(secrets).toEqual([...secrets].sort((a, b) => b.length - a.length));
    expect(secrets).not.toContain("");
  });

  test("gives a percent-encoded password in both forms, and what Basic authentication sends", () => {
    const secrets = secretsOf(
      loadWith(
        "destinations: { a: { url: 'amqp://u:p%40ss@h', exchange: e }, b: { baseUrl: http://h, auth: { username: u, password: pw } } }\n",
      ),
    );
    expect(secrets).toEqual(expect.arrayContaining(["p%40ss", "p@ss", "pw", Buffer.from("u:pw").toString("base64")]));
  });

  test("gives a header's value with and without its scheme", () => {
    const config = loadWith("destinations: { a: { baseUrl: http://h, auth: { headerValue: Bearer abc } } }\n");
    expect(secretsOf(config)).toEqual(expect.arrayContaining(["Bearer abc", "abc"]));
  });

  test("leaves ordinary values alone", () => {
    expect(secretsOf(loadWith("destinations: { a: { baseUrl: http://h, headers: { x-tenant: acme } } }\n"))).toEqual([
      "s3cret",
    ]);
  });
});

describe("a URL key", () => {
  test.each([
    ["user:pa@ss@host:5672/v", "user:***@host:5672/v", "pa@ss"],
    ["amqp:/user:pass@host", "amqp:***@host", "/user:pass"],
    ["t0ken-alone@host:4222", "***@host:4222", "t0ken-alone"],
    ["user:pass@a:4222,nats://u:other@b:4222", "user:***@a:4222,nats://u:***@b:4222", "pass"],
    ["a:pass@x,b:second@y", "a:***@y", "second"],
    ["host=h password=pass user=u", "host=h password=*** user=u", "pass"],
    ["jdbc:postgresql:u:pass@h/d", "jdbc:***@h/d", "postgresql:u:pass"],
    ["amqp://user:p%40ss@host", "amqp://user:***@host", "p@ss"],
    ["broker:9092,other:9092", "broker:9092,other:9092", undefined],
  ])("%s shows as %s", (text, shown, password) => {
    expect(maskUrl(text)).toBe(shown);
    if (password === undefined) expect(passwordsInUrl(text)).toEqual([]);
    else expect(passwordsInUrl(text)).toContain(password);
  });

  test.each([
    ["destinations: { d: { url: 'user:hidden@h', exchange: e } }", "destinations.d.url"],
    ["sources: { s: { queueName: q, connectionUrl: 'user:hidden@h' } }", "sources.s.connectionUrl"],
    ["destinations: { d: { baseUrl: 'user:hidden@h' } }", "destinations.d.baseUrl"],
    ["destinations: { d: { servers: 'user:hidden@ho st', subject: s } }", "destinations.d.servers"],
    ["destinations: { d: { bootstrapServers: 'user:hidden@h:1', topic: s } }", "destinations.d.bootstrapServers"],
  ])("shows no password without a scheme: %s", (yaml, path) => {
    const { problems, warnings, loaded } = inspectConfig(options(`${DATABASE}${yaml}\n`));
    const report = JSON.stringify([problems, warnings, loaded && printConfig(loaded)]);
    expect(report).toContain(path);
    expect(report).not.toContain("hidden");
  });

  test("of the database shows no password without a scheme", () => {
    const { problems } = inspectConfig(options(DATABASE.replace(/url: .*/, "url: 'user:hidden@db/svc'")));
    expect(JSON.stringify(problems)).toContain("database.url");
    expect(JSON.stringify(problems)).not.toContain("hidden");
  });
});

describe("maskUrls", () => {
  test.each([
    ["amqp://user:pa@ss/word@host/v", "amqp://user:***@host/v"],
    ["nats://u:pa,ss@a,nats://u:pw@b", "nats://u:***@a,nats://u:***@b"],
    ["nats://token@host", "nats://***@host"],
    ["jdbc:postgresql://h/d?user=u&password=pw&ssl=true", "jdbc:postgresql://h/d?user=u&password=***&ssl=true"],
    ["jdbc:sqlserver://h;password={a;b}}c};encrypt=true", "jdbc:sqlserver://h;password=***;encrypt=true"],
    ["jdbc:sqlserver://h;password={a;b", "jdbc:sqlserver://h;password=***"],
    ["http://host/path?a=b", "http://host/path?a=b"],
    ["plain text", "plain text"],
  ])("%s becomes %s", (url, masked) => {
    expect(maskUrls(url)).toBe(masked);
  });
});
