import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { beforeAll, describe, expect, test } from "@jest/globals";
import sql from "mssql";
import { createKafkaClient } from "../../../src/adapters/brokers/kafka/client.ts";
import { recordingLog } from "../../support/recorders.ts";

/**
 * What the adapters use of their client libraries though it is not public (docs/dependencies.md), as far as no suite with
 * a real database or broker fails with a version that is built differently. SQL Server is not there on every change.
 */

const PINNED = ["amqplib", "jsonata", "kafkajs", "mssql", "nats", "pg"] as const;
const packages = createRequire(import.meta.url);
const json = (file: string) => JSON.parse(readFileSync(new URL(`../../../${file}`, import.meta.url), "utf8"));

test.each(PINNED)("%s is pinned to the version that the lock file has and these tests run with", (name) => {
  const { dependencies } = json("package.json");
  const { packages: locked } = json("package-lock.json");
  const { version } = json(`node_modules/${name}/package.json`);
  expect(dependencies[name]).toBe(version);
  expect(locked[""].dependencies[name]).toBe(version);
  expect(locked[`node_modules/${name}`].version).toBe(version);
});

describe("kafkajs", () => {
  beforeAll(() => {
    createKafkaClient(
      { bootstrapServers: "127.0.0.1:1", securityProtocol: "PLAINTEXT" },
      { connectTimeoutMs: 1, requestTimeoutMs: 1, retries: 0, firstServer: 0, log: recordingLog().log },
    );
  });

  test("its queue of requests sets no timer when nothing waits, and one when something does", () => {
    const RequestQueue = packages("kafkajs/src/network/requestQueue");
    const queue = new RequestQueue({
      maxInFlightRequests: 1,
      requestTimeout: 1000,
      enforceRequestTimeout: false,
      clientId: "svc",
      broker: "",
    });
    expect(queue.pending).toEqual([]);
    queue.scheduleCheckPendingRequests();
    expect(queue.throttleCheckTimeoutId).toBeNull();
    queue.pending.push({});
    queue.scheduleCheckPendingRequests();
    expect(queue.throttleCheckTimeoutId).not.toBeNull();
    clearTimeout(queue.throttleCheckTimeoutId);
  });

  test("its encoder begins small", () => {
    const Encoder = packages("kafkajs/src/protocol/encoder");
    expect(new Encoder().buf).toHaveLength(64);
  });
});

test("mssql: a request takes a timeout of its own, on a pool and in a transaction", () => {
  const pool = new sql.ConnectionPool({ server: "localhost" });
  for (const on of [pool, new sql.Transaction(pool)]) {
    const request = (on as unknown as { request(own: object): object }).request({ requestTimeout: 1234 });
    expect(request).toHaveProperty("overrides.requestTimeout", 1234);
  }
});
