import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "@jest/globals";
import pg from "pg";
import { enqueue, fromPg } from "../../clients/typescript/src/index.ts";
import { memoryReceiver, svcDev } from "../../clients/typescript/src/testing.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { freePort } from "../support/ports.ts";
import { pathOf } from "../support/repository.ts";
import { useServices } from "../support/service.ts";
import { within } from "../support/within.ts";

/** The helpers of the client for TypeScript for tests of applications. */

const services = useServices();
failOnLeaks();

/** A shell does not pass signals to its child. */
const wrapped = (...command: readonly string[]) => ["sh", "-c", '"$@"; exit $?', "sh", ...command];

test("svcDev delivers to a receiver in memory, and nothing runs after its end", async () => {
  const cwd = services.folder();
  await using receiver = await memoryReceiver();
  const port = await freePort();
  const config = {
    destinations: { receiver: { baseUrl: receiver.url } },
    routes: [{ topicPattern: "orders.**", destination: "receiver" }],
  };
  writeFileSync(path.join(cwd, "svc.yml"), JSON.stringify(config));
  const env = { SVC_SERVER_HTTPPORT: String(port) };
  const svc = await svcDev({ command: wrapped(process.execPath, pathOf("dist/roles/svc.js")), cwd, env });
  try {
    const client = new pg.Client(svc.databaseUrl);
    await client.connect();
    try {
      for (const id of [1, 2]) await enqueue(fromPg(client), { topic: "orders.paid", key: "o", payload: { id } });
    } finally {
      await client.end();
    }
    expect((await receiver.received(2)).map(({ body }) => body)).toEqual(['{"id":1}', '{"id":2}']);
    await expect(receiver.received(3, 10)).rejects.toThrow("2 of 3 messages came within 10 ms");
  } finally {
    await within(30_000, "the end of svc", Promise.resolve(svc[Symbol.asyncDispose]()));
  }
  await expect(fetch(`http://127.0.0.1:${port}/health`)).rejects.toThrow("fetch failed");
});

test("svcDev waits for the end of svc behind its command", async () => {
  const cwd = services.folder();
  mkdirSync(path.join(cwd, ".svc"));
  writeFileSync(path.join(cwd, ".svc", "database-url"), "postgres://nowhere\n");
  const program = `
    const end = () => {
      require("node:fs").writeFileSync("ended", "");
      process.exit();
    };
    process.on("SIGTERM", () => setTimeout(end, 200));
    setInterval(() => {}, 1000);
    console.error("a warning");
    console.log("svc is running");`;
  const svc = await svcDev({ command: wrapped(process.execPath, "-e", program), cwd });
  expect(svc.databaseUrl).toBe("postgres://nowhere");
  await eventually(() => expect(svc.lines).toContain("a warning"));
  await svc[Symbol.asyncDispose]();
  expect(existsSync(path.join(cwd, "ended"))).toBe(true);
});

test("svcDev says what svc printed when it does not start", async () => {
  const failing = (program: string) => svcDev({ command: [process.execPath, "-e", program], cwd: services.folder() });
  await expect(failing('console.error("no such key"); process.exit(2)')).rejects.toThrow(
    "svc dev ended with code 2; its last lines:\nno such key",
  );
  await expect(svcDev({ command: ["no-such-program"], cwd: services.folder() })).rejects.toThrow("ENOENT");
});
