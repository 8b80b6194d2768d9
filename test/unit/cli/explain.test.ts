import { describe, expect, test } from "@jest/globals";
import { addExplainCommand } from "../../../src/cli/explain.ts";
import { runCommand } from "../../support/commands.ts";
import { DATABASE, disk } from "../config/support.ts";

const CONFIG = `${DATABASE}
destinations:
  shop:
    baseUrl: https://shop.example.com/api
    path: /orders
    transform: { expression: $, timeoutMs: 50, maxDepth: 20, onError: Dead }
  billing:
    url: amqp://svc:rabbit-password@broker:5672/vhost
    exchange: billing.{{ payload.country }}
  ledger:
    url: amqp://broker
    exchange: ledger
    exchangeFrom: aggregate_type
    routingKeyTemplate: "{{ key }}"
  audit:
    bootstrapServers: one:9092,two:9092
    topic: audit-{{ aggregateType }}
    concurrency: 4
    rateLimit: { perSecond: 2.5 }
    retry: { schedule: [5s, 1m], jitter: 0.1 }
    maxAttempts: 12
    circuitBreaker: { openMs: 2000 }
  alerts:
    servers: nats://svc:nats-password@one:4222,nats://nats-token@two:4222
    subject: alerts.{{ topic }}
    concurrency: 100
    rateLimit: { perSecond: 5, burst: 20 }
    retry: { factor: 3, maxDelayMs: 600000 }
routes:
  - { topicPattern: orders.created, destination: shop, transform: { expression: $.order } }
  - { topicPattern: orders.**, destination: billing, routingKeyTemplate: "{{payload.id}}-{{ key }}", routingKeyMissingFieldDefault: none }
  - { topicPattern: "ledger", destination: ledger }
  - { topicPattern: audit.*, destination: audit, onExhausted: park }
  - { topicPattern: alerts.**, destination: alerts }
  - { topicPattern: orders.**, destination: audit }
  - topicPattern: bills.*
    destinations:
      - alerts
      - name: audit
        when: amount > 10
        transform: { expression: $.bill }
        onExhausted: park
        maxAttempts: 3
      - { name: ledger, routingKeyTemplate: "bill-{{ key }}" }
`;

const FILES = {
  "svc.yml": CONFIG,
  "empty.yml": DATABASE,
  "bad.yml": "routes: 1",
  "signed.yml": `${DATABASE}
destinations:
  partner:
    baseUrl: http://h/hooks
    path: /orders/{{ key }}
    method: PUT
    signing: { scheme: standard-webhooks, secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw] }
routes: [{ topicPattern: "**", destination: partner }]
`,
  "order.json": '{"id":12345678901234567890,"country":"at"}',
};

/** Runs `svc explain topic <args>` over the files, and gives what it wrote. */
async function explain(args: readonly string[], file = "svc.yml") {
  const { error, ...written } = await runCommand(
    addExplainCommand,
    ["explain", "topic", ...args, "--config", file],
    disk(FILES),
  );
  if (error === undefined) return written;
  const { exitCode } = error as { readonly exitCode?: number };
  if (exitCode === undefined) throw error;
  return { ...written, exitCode };
}

const lines = (text: string) => text.trimEnd().split("\n");

describe("svc explain topic", () => {
  test("names the first route that matches, the routes that it shadows, the transforms in order, and the URL", async () => {
    const { stdout, exitCode } = await explain(["orders.created"]);
    expect(lines(stdout)).toEqual([
      "topic        orders.created",
      'route        routes[0] "orders.created" to shop',
      'shadowed     routes[1] "orders.**" to billing matches too, but routes[0] comes first',
      'shadowed     routes[5] "orders.**" to audit matches too, but routes[0] comes first',
      "destination  shop (http)",
      "concurrency  8 in flight in one process  (outbox.concurrency)",
      "rate limit   none",
      "retry        after 1000 ms, each further wait 2 times as long, at most 60000 ms, jitter 0.25  (outbox.retryBaseDelayMs)",
      "attempts     the row's max_attempts",
      "breaker      none",
      "exhausted    the row is dead, later rows of its key are delivered",
      "transform    routes[0].transform (timeoutMs 100, maxDepth 100, onError Fail)",
      "transform    destinations.shop.transform (timeoutMs 50, maxDepth 20, onError Dead)",
      "url          POST https://shop.example.com/api/orders",
    ]);
    expect(exitCode).toBe(0);
  });

  test("renders exchange and routing key, and masks the password of the broker", async () => {
    const { stdout } = await explain(["orders.paid", "--key", "c-1", "--payload", "order.json"]);
    expect(lines(stdout).slice(-3)).toEqual([
      "broker       amqp://svc:***@broker:5672/vhost",
      'exchange     billing.at  (template "billing.{{ payload.country }}")',
      'routing key  12345678901234567890-c-1  (routes[1].routingKeyTemplate "{{payload.id}}-{{ key }}")',
    ]);
    expect(stdout).not.toContain("rabbit-password");
  });

  test("takes an address from its column, and says that a publish without one fails", async () => {
    const named = await explain(["ledger", "--aggregate-type", "invoice"]);
    expect(lines(named.stdout).slice(-2)).toEqual([
      "exchange     invoice  (column aggregate_type)",
      'routing key  (empty)  (destinations.ledger.routingKeyTemplate "{{ key }}")',
    ]);
    const unnamed = await explain(["ledger"]);
    expect(unnamed.stdout).toContain(
      "exchange     the publish fails: the exchange is empty: the column aggregate_type gave no text for this row",
    );
  });

  test("renders topic and record key of a Kafka destination, and an empty record key as none", async () => {
    const { stdout } = await explain(["audit.login", "--aggregate-type", "user"]);
    expect(lines(stdout).slice(-3)).toEqual([
      "broker       one:9092,two:9092",
      'topic        audit-user  (template "audit-{{ aggregateType }}")',
      'record key   none  (destinations.audit.keyTemplate "{{ key }}")',
    ]);
  });

  test("renders a subject, and masks the credentials of every server", async () => {
    const { stdout } = await explain(["alerts.disk"]);
    expect(lines(stdout).slice(-2)).toEqual([
      "broker       nats://svc:***@one:4222,nats://***@two:4222",
      'subject      alerts.alerts.disk  (template "alerts.{{ topic }}")',
    ]);
    expect(stdout).not.toMatch(/nats-password|nats-token/);
  });

  test("prints the limits of the destination, with what it leaves to defaults and to the process", async () => {
    const audit = await explain(["audit.login"]);
    expect(lines(audit.stdout).slice(2, 9)).toEqual([
      "destination  audit (kafka)",
      "concurrency  4 in flight in one process",
      "rate limit   2.5 per second, burst 3, for all replicas together",
      "retry        after 5000 ms, 60000 ms, then the last wait again, jitter 0.1",
      "attempts     12 if the row's max_attempts is 5, else the row's",
      "breaker      opens at 0.5 failed of at least 10 in 30000 ms; probes after 2000 to 60000 ms",
      "exhausted    the row is parked, later rows of its key wait  (routes[3].onExhausted)",
    ]);
    const alerts = await explain(["alerts.disk"]);
    expect(lines(alerts.stdout).slice(3, 6)).toEqual([
      "concurrency  8 in flight in one process  (outbox.concurrency)",
      "rate limit   5 per second, burst 20, for all replicas together",
      "retry        after 1000 ms, each further wait 3 times as long, at most 600000 ms, jitter 0.25  (outbox.retryBaseDelayMs)",
    ]);
  });

  test("lists every destination of a route, with what its entry says of it", async () => {
    const { stdout, exitCode } = await explain(["bills.paid", "--key", "c-1"]);
    const found = lines(stdout);
    expect(exitCode).toBe(0);
    expect(found[1]).toBe('route        routes[6] "bills.*" to alerts, audit, ledger');
    const starts = found.flatMap((line, n) => (line.startsWith("destination ") ? [n] : []));
    expect(starts.map((n) => found[n])).toEqual([
      "destination  alerts (nats)",
      "destination  audit (kafka)",
      "destination  ledger (rabbitmq)",
    ]);
    const [, audit = 0, ledger = 0] = starts;
    expect(found.slice(audit + 1, ledger).filter((line) => line.includes("routes[6]"))).toEqual([
      "when         routes[6].destinations[1].when (timeoutMs 100, maxDepth 100, onError Fail)",
      "attempts     3 if the row's max_attempts is 5, else the row's  (routes[6].destinations[1].maxAttempts)",
      "exhausted    the row is parked, later rows of its key wait  (routes[6].destinations[1].onExhausted)",
      "transform    routes[6].destinations[1].transform (timeoutMs 100, maxDepth 100, onError Fail)",
    ]);
    expect(found.at(-1)).toBe('routing key  bill-c-1  (routes[6].destinations[2].routingKeyTemplate "bill-{{ key }}")');
  });

  test("ends with code 1 when no route matches, and says that the row goes dead", async () => {
    const { stdout, exitCode } = await explain(["audit.a.b"]);
    expect(stdout).toMatch(/^route {2}none matches, of "orders.created", .*: a row with this topic goes dead$/m);
    expect(exitCode).toBe(1);
    expect(await explain(["x"], "empty.yml")).toMatchObject({
      stdout: "topic  x\nroute  there are no routes: a row with this topic goes dead\n",
      exitCode: 1,
    });
  });

  test("ends with code 2 when the payload cannot be read", async () => {
    const { stderr, exitCode } = await explain(["orders.paid", "--payload", "nowhere.json"]);
    expect([stderr, exitCode]).toEqual([expect.stringMatching(/--payload: cannot read nowhere.json: ENOENT/), 2]);
  });

  test("renders the path of an HTTP destination, and shows no secret that signs", async () => {
    const { stdout, exitCode } = await explain(["bills.paid", "--key", "a b"], "signed.yml");
    expect(exitCode).toBe(0);
    expect(stdout).toMatch(/PUT http.*\/hooks\/orders\/\{\{ key \}\}[\s\S]*path +\/orders\/a%20b/);
    expect(stdout).not.toMatch(/MfKQ9r8G/);
  });
});
