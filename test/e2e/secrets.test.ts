import { createHmac } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import { Collector } from "../support/collector.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import type { Receiver } from "../support/receiver.ts";
import { SECRET_FORMS } from "../support/secretForms.ts";
import { type ConfigTree, merged, ordersTo, useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

/** Every credential that a configuration can hold here; the characters often get lost in encodings. */
const SECRETS = {
  sourceToken: "src-T0ken+/=%&<source>",
  hmacSecret: "hm@c-s3cret-of-the-partner",
  password: "p@ss:w/rd ümlaut-9",
  headerValue: "ApiKey k-99887766554433",
  clientSecret: "cl1ent&s3cret=very+long",
  extraParam: "assertion+of/the=client",
  accessToken: "issued-access/token+424242==",
  staticHeader: "static&header<value>",
  amqpPassword: "amqp-p<ss+word",
  kafkaPassword: "kafka/p&ssword",
  natsToken: "nats-t\"oken'9",
} as const;

/** Every spelling in which an echo may bring a secret back. */
function spellings(secret: string): readonly string[] {
  return Object.values(SECRET_FORMS).map((write) => write(secret));
}

function config(receiver: Receiver): ConfigTree {
  const auths = {
    basic: { username: "user", password: SECRETS.password },
    header: { headerValue: SECRETS.headerValue },
    oauth2: {
      clientId: "relay",
      clientSecret: SECRETS.clientSecret,
      tokenUrl: `${receiver.url}/token`,
      extraParams: { client_assertion: SECRETS.extraParam },
    },
    oauth2Broken: { clientId: "relay", clientSecret: SECRETS.clientSecret, tokenUrl: `${receiver.url}/broken-token` },
  };
  const destinations = Object.entries(auths).map(([name, auth]) => [
    name,
    { baseUrl: receiver.url, path: `/${name}`, auth, headers: { "X-Shop-Secret": SECRETS.staticHeader } },
  ]);
  // No route leads there: only their credentials matter.
  const sasl = { securityProtocol: "SASL_SSL", saslMechanism: "PLAIN", saslUsername: "u" };
  const brokers = {
    rabbit: { url: `amqp://u:${encodeURIComponent(SECRETS.amqpPassword)}@127.0.0.1:1/`, exchange: "x" },
    kafka: { bootstrapServers: "127.0.0.1:1", topic: "t", ...sasl, saslPassword: SECRETS.kafkaPassword },
    nats: { servers: "nats://127.0.0.1:1", subject: "s", token: SECRETS.natsToken },
  };
  const hmac = { path: "/signed", idempotencyKeyPath: "$.id", topic: "signed", auth: { secret: SECRETS.hmacSecret } };
  return merged(ordersTo(receiver), {
    http: { maxErrorBodyBytes: 60_000 },
    outbox: { maxAttempts: 2, retryBaseDelayMs: 20 },
    sources: { orders: { auth: { type: "bearer", token: SECRETS.sourceToken } }, signed: hmac },
    destinations: { ...Object.fromEntries(destinations), ...brokers },
    routes: Object.keys(auths).map((name) => ({ topicPattern: `orders.${name}`, destination: name })),
  });
}

describe("a secret of the configuration", () => {
  test("appears nowhere, also when a receiver echoes the credentials it was sent", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    receiver.answer = ({ url, headers, body }, response) => {
      // What it was sent, and all it knows from elsewhere, in every spelling.
      const { accessToken, ...configured } = SECRETS;
      // Nobody can know the token before it was issued.
      const issued = headers.authorization?.startsWith("Bearer ") ? [accessToken] : [];
      const known = [...Object.values(configured), ...issued].flatMap(spellings).join(" ");
      const echo = `${JSON.stringify(headers)} ${body} ${decoded(headers.authorization)} ${known}`;
      const token = JSON.stringify({ access_token: SECRETS.accessToken, token_type: "Bearer", expires_in: 3600 });
      if (url === "/token") response.writeHead(200, { "content-type": "application/json" }).end(token);
      else response.writeHead(500, { "x-echo": "yes" }).end(`you sent ${echo}`);
    };
    const collector = await Collector.start();
    services.defer(() => collector.close());
    const service = await services.start({
      database,
      config: merged(config(receiver), { tracing: { enabled: true }, metrics: { otlp: true } }),
      env: { LOG_LEVEL: "debug", ...collector.env },
    });
    const authorization = `Bearer ${SECRETS.sourceToken}`;
    const answers = [await service.post({ id: "x", type: "x" }, { headers: { authorization: `${authorization}x` } })];
    for (const type of ["basic", "header", "oauth2", "oauth2Broken"]) {
      answers.push(await service.post({ id: type, type }, { headers: { authorization } }));
    }
    const body = '{"id":"signed-1"}';
    const signature = createHmac("sha256", SECRETS.hmacSecret).update(body).digest("hex");
    const signed = { path: "/inbox/signed", headers: { "x-signature": `sha256=${signature}` } };
    answers.push(await service.post(body, signed), await service.post(`${body} `, signed));
    expect(answers.map(({ status }) => status)).toEqual([401, 202, 202, 202, 202, 202, 401]);

    const rows = await eventually(
      async () => {
        const found = await database.query("SELECT * FROM outbox WHERE state = 'dead'");
        expect(found).toHaveLength(5);
        return found;
      },
      { timeoutMs: 10_000 },
    );
    const reasons = rows.map((row) => String(row.last_error));
    expect(reasons.filter((reason) => reason.includes("answered 500: you sent"))).toHaveLength(3);
    expect((await service.get("/health")).status).toBe(200);
    const places = {
      metrics: (await service.get("/metrics")).text,
      answers: answers.map(({ text, headers }) => text + JSON.stringify(headers)).join("\n"),
      tables: JSON.stringify([rows, await database.query("SELECT * FROM inbox")]),
    };
    await service.stop();
    const output = service.process.lines.join("\n");
    expect(output).toContain("delivery attempted");
    const spans = JSON.stringify(collector.spans);
    expect(spans).toContain('"svc.outcome":"dead"');
    const pushed = JSON.stringify(collector.metrics);
    expect(pushed).toContain("svc_outbox_messages_total");
    for (const [place, text] of Object.entries({ ...places, output, spans, pushed })) {
      for (const [name, secret] of [...Object.entries(SECRETS), ["databasePassword", database.password] as const]) {
        for (const spelling of spellings(secret)) {
          expect([place, name, text.includes(spelling)]).toEqual([place, name, false]);
        }
      }
    }
  });

  test("appears nowhere in the error that ends a start", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const secret = "n0-such-database-x9";
    const service = await services.launch({
      database: { ...database, jdbcUrl: database.jdbcUrl.replace(/\/[^/?]*(\?|$)/, `/${secret}$1`) },
      config: ordersTo(receiver, {
        database: { startupTimeoutMs: 3000 },
        destinations: { other: { baseUrl: receiver.url, auth: { headerValue: secret } } },
      }),
    });
    expect((await service.process.exited).code).toBe(1);
    const output = service.process.lines.join("\n");
    expect(output).toMatch(/svc: .*database \\?"\*\*\*\\?" does not exist/);
    expect(output).not.toContain(secret);
  });

  test("of the database appears nowhere when the database refuses it", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const password = "wr0ng-p@ssword/of:ours";
    const service = await services.launch({
      database: { ...database, password },
      config: ordersTo(receiver, { database: { startupTimeoutMs: 500 } }),
      env: { LOG_LEVEL: "debug" },
    });
    expect((await service.process.exited).code).toBe(1);
    const output = service.process.lines.join("\n");
    expect(output).toMatch(/(password|SASL) authentication failed/);
    for (const spelling of spellings(password)) expect(output.includes(spelling)).toBe(false);
  });
});

/** The credentials of a Basic header in the clear, as a debugging receiver may show them. */
function decoded(authorization: string | undefined): string {
  const basic = /^Basic (.+)$/.exec(authorization ?? "")?.[1];
  return basic === undefined ? "" : Buffer.from(basic, "base64").toString("utf8");
}
