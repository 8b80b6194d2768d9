import { expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { databaseConfig, merged, ordersTo, useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

test("svc tail shows what the replicas and the operators do, as it comes, until a signal", async () => {
  const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  receiver.answer = (_request, response) => response.writeHead(503).end("not today");
  const config = ordersTo(receiver, { outbox: { maxAttempts: 1, pollIntervalMs: 100 } });
  const service = await services.start({ database, config });
  const deadRows = () => database.query("SELECT id FROM outbox WHERE state = 'dead' ORDER BY sequence");
  const post = async (id: string, dead: number) => {
    expect((await service.post({ id, key: id, type: "created" })).status).toBe(202);
    await eventually(async () => expect(await deadRows()).toHaveLength(dead));
  };
  await post("a", 1);
  await post("b", 2);

  const file = services.configFile(merged(config, { database: databaseConfig(database) }));
  const { svc } = services.processes;
  const following = svc(["tail", "-n", "1", "--json", "--config", file], { env: { LOG_LEVEL: "warn" } });
  const shown = () => following.stdout.filter((line) => line.startsWith("{")).map((line) => JSON.parse(line));
  await eventually(async () => expect(shown()).toHaveLength(1));
  await post("c", 3);
  const [, second, third] = (await deadRows()).map(({ id }) => id);
  await svc(["replay", "--id", String(second), "--config", file], { env: { LOG_LEVEL: "warn" } }).exited;
  await eventually(async () => expect(shown()).toHaveLength(4));
  expect(shown().map(({ id, event }) => [id, event])).toEqual([
    [second, "dead"],
    [third, "dead"],
    [second, "replayed"],
    [second, "dead"],
  ]);
  expect(shown()[1]).toMatchObject({ attempt: 1, destination: "receiver", status: "503" });
  following.kill("SIGINT");
  expect(await following.exited).toMatchObject({ code: 0 });

  const text = svc(["tail", "--config", file], { env: { LOG_LEVEL: "warn" } });
  await text.waitForLine(
    /dead .*attempt 1, to receiver, by \S+, \d+ ms, status_5xx, 503: POST .* was answered 503: not today$/,
  );
  text.kill("SIGTERM");
  expect(await text.exited).toMatchObject({ code: 0 });
  expect((await service.stop()).code).toBe(0);
});
