import { writeFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "@jest/globals";
import { failOnLeaks } from "../support/leaks.ts";
import { ordersTo, useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

const PASSWORD = "hunter2-and-more";
/** No database is there: none is to be asked. */
const DATABASE = { url: "jdbc:postgresql://127.0.0.1:1/none", username: "svc", password: PASSWORD };

const CONFIG = ordersTo(
  { url: "http://127.0.0.1:9" },
  {
    database: DATABASE,
    sources: {
      orders: {
        transform: { expression: '{"id": id, "type": $eventType, "tenant": $headers."X-Tenant"}', onError: "Skip" },
      },
    },
    destinations: {
      receiver: { transform: { expression: '{"at": $topic & "/" & $attempt, "n": $sum([1..n])}', timeoutMs: 5000 } },
      queue: { url: `amqp://svc:${PASSWORD}@127.0.0.1:1`, exchange: "e-{{ payload.country }}" },
    },
    routes: [
      { topicPattern: "orders.**", destination: "receiver", transform: { expression: '$error("no " & id)' } },
      { topicPattern: "queue.*", destination: "queue" },
    ],
  },
);

/** Runs `svc` with the configuration in `svc.yml` and the payload in `payload.json` of its folder. */
async function svc(args: readonly string[], payload = "{}") {
  const folder = services.folder();
  writeFileSync(path.join(folder, "svc.yml"), JSON.stringify(CONFIG));
  writeFileSync(path.join(folder, "payload.json"), payload);
  const child = services.processes.svc(args, { cwd: folder });
  const { code } = await child.exited;
  return { code, stdout: child.stdout.join("\n"), stderr: child.stderr.join("\n") };
}

const TRY = ["transform", "test", "--payload", "payload.json"];

describe("svc transform test", () => {
  test("prints what an expression makes of a payload, without a configuration", async () => {
    const expression = '{"total": $sum(lines.price), "topic": $topic, "source": $source}';
    const payload = '{"lines":[{"price":2},{"price":3.5}]}';
    expect(await svc([...TRY, "--expression", expression, "--source", "shop"], payload)).toEqual({
      code: 0,
      stdout: '{\n  "total": 5.5,\n  "topic": "test.topic",\n  "source": "shop"\n}',
      stderr: "",
    });
  });

  test("takes a configured transform with its limits and the variables of its stage", async () => {
    const delivered = await svc(
      [...TRY, "--of", "destinations.receiver", "--config", "svc.yml", "--topic", "orders.x", "--attempt", "2"],
      '{"n":200000}',
    );
    expect([delivered.code, JSON.parse(delivered.stdout)]).toEqual([0, { at: "orders.x/2", n: 20000100000 }]);
    const received = await svc(
      [...TRY, "--of", "sources.orders", "-c", "svc.yml", "--header", "X-Tenant: blue"],
      '{"id":"m-1","type":"created"}',
    );
    expect([received.code, JSON.parse(received.stdout)]).toEqual([0, { id: "m-1", type: "created", tenant: "blue" }]);
  });

  test("ends with code 1 and the reason when the expression fails, runs too long, or does not compile", async () => {
    const failed = await svc([...TRY, "--of", "routes[0]", "--config", "svc.yml"], '{"id":"m-1"}');
    expect([failed.code, failed.stdout]).toEqual([1, ""]);
    expect(failed.stderr).toMatch(/the transform failed: .*no m-1/);
    expect(failed.stderr).toMatch(/With onError Fail, a delivery fails and is tried again/);
    const endless = "($f := function($n) { $f($n + 1) }; $f(0))";
    expect((await svc([...TRY, "--expression", endless, "--timeout-ms", "50"])).stderr).toMatch(/50 ms/);
    expect(await svc([...TRY, "--expression", "{ broken("])).toMatchObject({ code: 1, stdout: "" });
  });

  test("ends with code 1 when the source would refuse the payload before its transform", async () => {
    const { code, stderr } = await svc([...TRY, "--of", "sources.orders", "--config", "svc.yml"], '{"type":"created"}');
    expect([code, stderr]).toEqual([1, expect.stringMatching(/sources\.orders refuses the payload .*\$\.id/)]);
  });
});

describe("svc explain topic", () => {
  test("says where a message goes, without a database and without a password", async () => {
    const { code, stdout } = await svc(
      ["explain", "topic", "queue.a", "-c", "svc.yml", "--payload", "payload.json"],
      '{"country":"at"}',
    );
    expect(code).toBe(0);
    expect(stdout).toMatch(/^route +routes\[1\] "queue\.\*" to queue$/m);
    expect(stdout).toMatch(/^exchange +e-at {2}\(template /m);
    expect(stdout).toMatch(/^broker +amqp:\/\/svc:\*\*\*@127\.0\.0\.1:1$/m);
    expect(stdout).not.toContain(PASSWORD);
  });
});
