import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { type AddressInfo, createServer, Socket } from "node:net";
import { beforeAll, describe, expect, test } from "@jest/globals";
import sql from "mssql";
import pg from "pg";
import { createKafkaClient } from "../../../src/adapters/brokers/kafka/client.ts";
import { connectTracked } from "../../../src/adapters/brokers/nats/link.ts";
import { openConnection } from "../../../src/adapters/brokers/rabbitmq/connection.ts";
import { parseAmqpUri } from "../../../src/adapters/brokers/rabbitmq/uri.ts";
import { connectionConfig } from "../../../src/adapters/capture/sqlserver-cdc/session.ts";
import { execute, socketOf } from "../../../src/adapters/stores/postgres/statement.ts";
import { startBlackHole } from "../../support/blackHole.ts";
import { eventually } from "../../support/eventually.ts";
import { failOnLeaks } from "../../support/leaks.ts";
import { recordingLog } from "../../support/recorders.ts";
import { within } from "../../support/within.ts";
import { ENDPOINT } from "./capture/scriptedCdc.ts";

/**
 * What the adapters use of their client libraries though it is not public (docs/dependencies.md), as far as no suite with
 * a real database or broker fails with a version that is built differently. SQL Server is not there on every change.
 */

failOnLeaks();

const PINNED = ["amqplib", "jsonata", "kafkajs", "mssql", "nats", "pg", "tedious"] as const;
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

/** A server on a free port, which ends once its connections have. */
async function startServer(serve: (socket: Socket) => void) {
  const server = createServer(serve);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    [Symbol.asyncDispose]: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}

test("pg: the statements of a transaction leave in one write, by the socket of the connection", async () => {
  const message = (type: string, body: Buffer | string = "") => {
    const head = Buffer.alloc(5, type);
    head.writeUInt32BE(Buffer.byteLength(body) + 4, 1);
    return Buffer.concat([head, Buffer.from(body)]);
  };
  const READY = message("Z", "I");
  await using server = await startServer((socket) => {
    socket.once("data", () => {
      socket.write(Buffer.concat([message("R", "\0\0\0\0"), READY]));
      socket.on("data", (chunk: Buffer) => {
        for (let at = 0; at < chunk.length; at += 1 + chunk.readUInt32BE(at + 1)) {
          const type = chunk.toString("latin1", at, at + 1);
          if (type === "Q") socket.write(Buffer.concat([message("C", "BEGIN\0"), READY]));
          if (type === "S")
            socket.write(Buffer.concat([message("1"), message("2"), message("n"), message("C", "SELECT 0\0"), READY]));
        }
      });
    });
  });
  const client = new pg.Client({
    host: "127.0.0.1",
    port: server.port,
    user: "svc",
    database: "svc",
    password: "none",
  });
  await client.connect();
  let corks = 0;
  const socket = socketOf(client);
  const { cork } = socket;
  socket.cork = () => {
    corks += 1;
    cork.call(socket);
  };
  await execute(client as unknown as pg.PoolClient, { name: "one", text: "SELECT $1", byIndex: true }, ["x"], false);
  expect(corks).toBeGreaterThan(0);
  await client.end();
});

test("nats: the sockets of an attempt to connect are known, and destroyed with it", async () => {
  let [accepted, closed] = [0, 0];
  await using server = await startServer((socket) => {
    accepted += 1;
    socket.on("close", () => {
      closed += 1;
    });
    socket.resume();
  });
  const { outcome, destroy } = connectTracked({ servers: `127.0.0.1:${server.port}`, reconnect: false, timeout: 1000 });
  const failed = expect(outcome).rejects.toThrow();
  await eventually(() => expect(accepted).toBe(1));
  destroy();
  await eventually(() => expect(closed).toBe(1));
  await failed;
});

test("amqplib: an attempt to connect ends by the signal among the options of its socket", async () => {
  await using hole = await startBlackHole();
  const controller = new AbortController();
  const target = { ...parseAmqpUri(`amqp://svc:none@127.0.0.1:${hole.port}`), connectTimeoutMs: 10_000 };
  const opening = openConnection(target, controller.signal);
  await hole.reached;
  controller.abort(new Error("given up"));
  await expect(within(5000, "the end of the attempt", opening)).rejects.toThrow("given up");
  await eventually(() => expect(hole.givenUp).toBe(1));
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

describe("mssql and tedious", () => {
  type TrackedConnection = { readonly socket?: Socket; once(event: "debug", listener: () => void): void };

  test("a request takes a timeout of its own, on a pool and in a transaction", () => {
    const pool = new sql.ConnectionPool({ server: "localhost" });
    for (const on of [pool, new sql.Transaction(pool)]) {
      const request = (on as unknown as { request(own: object): object }).request({ requestTimeout: 1234 });
      expect(request).toHaveProperty("overrides.requestTimeout", 1234);
    }
  });

  test("a connection has its socket, and tells of each step by an event", async () => {
    await using hole = await startBlackHole();
    let tell: (connection: TrackedConnection) => void = () => {};
    const made = new Promise<TrackedConnection>((resolve) => {
      tell = resolve;
    });
    const pool = new sql.ConnectionPool(
      connectionConfig({ ...ENDPOINT, port: hole.port, connectionTimeoutMs: 10_000 }, (connection) =>
        tell(connection as unknown as TrackedConnection),
      ),
    );
    pool.on("error", () => {});
    const failed = pool.connect().catch((error: Error) => error.message);
    const connection = await within(5000, "the connection", made);
    await within(5000, "the event", new Promise<void>((resolve) => connection.once("debug", resolve)));
    await hole.reached;
    expect(connection.socket).toBeInstanceOf(Socket);
    connection.socket?.destroy(new Error("the session is closed"));
    await expect(within(5000, "the failure", failed)).resolves.toContain("the session is closed");
    await pool.close();
  });
});
