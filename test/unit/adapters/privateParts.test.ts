import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { type AddressInfo, createServer, Socket } from "node:net";
import { beforeAll, describe, expect, test } from "@jest/globals";
import jsonata from "jsonata";
import sql from "mssql";
import { type Msg, headers as natsHeaders } from "nats";
import pg from "pg";
import { createKafkaClient } from "../../../src/adapters/brokers/kafka/client.ts";
import { connectTracked } from "../../../src/adapters/brokers/nats/link.ts";
import { openConnection } from "../../../src/adapters/brokers/rabbitmq/connection.ts";
import { wireOf } from "../../../src/adapters/capture/postgres-logical/connection.ts";
import { connectionConfig } from "../../../src/adapters/capture/sqlserver-cdc/session.ts";
import { brokerMessageOf } from "../../../src/adapters/sources/nats/message.ts";
import { execute, socketOf } from "../../../src/adapters/stores/postgres/statement.ts";
import { startBlackHole } from "../../support/blackHole.ts";
import { eventually } from "../../support/eventually.ts";
import { failOnLeaks } from "../../support/leaks.ts";
import { recordingLog } from "../../support/recorders.ts";
import { within } from "../../support/within.ts";
import { ENDPOINT } from "./capture/scriptedCdc.ts";

/**
 * What the adapters use of their client libraries though it is not public, on the real libraries: a version that is built differently fails here.
 * docs/dependencies.md lists it. The packages are pinned, so only a change of package.json brings such a version.
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

/** A server on a free port that calls `serve` for each connection. */
async function startServer(serve: (socket: Socket) => void) {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {}).on("close", () => sockets.delete(socket));
    serve(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

describe("pg: the connection of a client", () => {
  /** A message of PostgreSQL's protocol. */
  const message = (type: string, body: Buffer | string = "") => {
    const head = Buffer.alloc(5, type);
    head.writeUInt32BE(Buffer.byteLength(body) + 4, 1);
    return Buffer.concat([head, Buffer.from(body)]);
  };
  const READY = message("Z", "I");
  /** Logs anybody in; gives each further chunk that comes to `answer`. */
  const startPostgres = (answer: (chunk: Buffer, socket: Socket) => void) =>
    startServer((socket) => {
      socket.once("data", () => {
        socket.write(Buffer.concat([message("R", "\0\0\0\0"), READY]));
        socket.on("data", (chunk: Buffer) => answer(chunk, socket));
      });
    });
  const connected = async (port: number) => {
    const client = new pg.Client({ host: "127.0.0.1", port, user: "svc", database: "svc", password: "none" });
    client.on("error", () => {});
    await client.connect();
    return client;
  };

  test("has the socket, which gathers what the client writes", async () => {
    const chunks: Buffer[] = [];
    await using server = await startPostgres((chunk) => chunks.push(chunk));
    const client = await connected(server.port);
    const socket = socketOf(client);
    expect(socket).toBeInstanceOf(Socket);
    socket.cork();
    const query = client.query("SELECT 'corked'").catch((error: Error) => error.message);
    expect((socket as Socket).writableLength).toBeGreaterThan("SELECT 'corked'".length);
    socket.uncork();
    await eventually(() => expect(Buffer.concat(chunks).toString()).toContain("SELECT 'corked'"));
    socket.destroy();
    await expect(query).resolves.toContain("Connection terminated");
    await client.end();
  });

  test("is the one that a statement in a transaction of its own is written on, in one write", async () => {
    let corks = 0;
    await using server = await startPostgres((chunk, socket) => {
      // One simple query after another: each is complete at once.
      for (let at = 0; at < chunk.length; at += 1 + chunk.readUInt32BE(at + 1)) {
        const type = chunk.toString("latin1", at, at + 1);
        if (type === "Q") socket.write(Buffer.concat([message("C", "BEGIN\0"), READY]));
        if (type === "S")
          socket.write(Buffer.concat([message("1"), message("2"), message("n"), message("C", "SELECT 0\0"), READY]));
      }
    });
    const client = await connected(server.port);
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

  test("tells of the stream of a replication, and sends into it", async () => {
    const received: Buffer[] = [];
    const wrote = (part: string) => eventually(() => expect(Buffer.concat(received).toString()).toContain(part));
    await using server = await startPostgres((chunk, socket) => {
      received.push(chunk);
      if (chunk.includes("START_REPLICATION")) {
        socket.write(Buffer.concat([message("W", "\0\0\0"), message("d", "from the server")]));
      }
    });
    const client = await connected(server.port);
    const wire = wireOf(client);
    const chunk = new Promise<Buffer>((resolve) => wire.on("copyData", (data) => resolve(data.chunk)));
    const started = new Promise<void>((resolve) => wire.once("replicationStart", resolve));
    const ended = client.query("START_REPLICATION SLOT svc LOGICAL 0/0").catch((error: Error) => error.message);
    await within(5000, "the start", started);
    expect((await within(5000, "the data", chunk)).toString()).toBe("from the server");
    wire.sendCopyFromChunk(Buffer.from("to the server"));
    await wrote(message("d", "to the server").toString());
    wire.stream.destroy();
    await expect(ended).resolves.toContain("Connection terminated");
    await client.end();
  });
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

  test("its encoder begins small, and writes the bytes that it writes unchanged", () => {
    const file = packages.resolve("kafkajs/src/protocol/encoder");
    const unchanged: { exports: { new (): KafkaEncoder } } = { exports: class {} as never };
    const requireIt = createRequire(file);
    new Function("module", "require", readFileSync(file, "utf8"))(unchanged, requireIt);
    const Changed = packages("kafkajs/src/protocol/encoder");
    const NUMBERS = [
      0,
      1,
      -1,
      63,
      64,
      -64,
      -65,
      8191,
      8192,
      2 ** 21,
      2 ** 28,
      -(2 ** 28),
      2 ** 29,
      2 ** 30 - 1,
      -(2 ** 30),
    ];
    const written = (encoder: KafkaEncoder) => {
      for (const each of NUMBERS) encoder.writeVarInt(each).writeUVarInt(Math.abs(each)).writeVarLong(each);
      for (const each of [2 ** 31, -(2 ** 31), 2 ** 40, Number.MAX_SAFE_INTEGER, "1234567890123"])
        encoder.writeVarLong(each);
      for (const length of [0, 1, 63, 64, 65, 600, 5000]) {
        encoder.writeVarIntString("é".repeat(length)).writeVarIntBytes(Buffer.alloc(length, 1)).writeInt32(length);
      }
      return encoder.buffer.toString("hex");
    };
    expect(new Changed().buf).toHaveLength(64);
    expect(new unchanged.exports().buf).toHaveLength(512);
    expect(written(new Changed())).toBe(written(new unchanged.exports()));
    for (const each of [...NUMBERS, 2 ** 31, 2 ** 40]) {
      expect(Changed.sizeOfVarLong(each)).toBe((unchanged.exports as typeof Changed).sizeOfVarLong(each));
    }
  });
});

interface KafkaEncoder {
  readonly buf: Buffer;
  readonly buffer: Buffer;
  writeVarInt(value: number): KafkaEncoder;
  writeUVarInt(value: number): KafkaEncoder;
  writeVarLong(value: number | string): KafkaEncoder;
  writeVarIntString(value: string): KafkaEncoder;
  writeVarIntBytes(value: Buffer): KafkaEncoder;
  writeInt32(value: number): KafkaEncoder;
}

describe("nats", () => {
  const INFO = { server_id: "S", version: "2.10.0", proto: 1, headers: true, max_payload: 1_048_576 };
  /** Greets, answers pings, and delivers one message to each subscription. */
  const startNats = (delivery: (sid: string) => Buffer) =>
    startServer((socket) => {
      socket.write(`INFO ${JSON.stringify(INFO)}\r\n`);
      socket.on("data", (chunk: Buffer) => {
        const text = chunk.toString("latin1");
        for (const _ of text.matchAll(/^PING\r$/gm)) socket.write("PONG\r\n");
        for (const [, sid = ""] of text.matchAll(/^SUB \S+ (\d+)\r$/gm)) socket.write(delivery(sid));
      });
    });

  test("messages hold the bytes of their headers as the server sent them", async () => {
    const block = Buffer.from("NATS/1.0\r\nid: caf\xe9\r\n\r\n", "latin1");
    const reply = "$JS.ACK.orders.svc.1.7.1.1700000000000000000.0";
    await using server = await startNats((sid) =>
      Buffer.concat([
        Buffer.from(`HMSG orders ${sid} ${reply} ${block.length} ${block.length + 4}\r\n`),
        block,
        Buffer.from("body\r\n"),
      ]),
    );
    const connection = await connectTracked({ servers: `127.0.0.1:${server.port}` }).outcome;
    const subscription = connection.subscribe("orders", { max: 1 });
    for await (const message of subscription) {
      const { headers, body } = brokerMessageOf(message satisfies Msg, "body");
      expect(body?.toString()).toBe("body");
      expect(headers).toEqual({ id: Buffer.from("caf\xe9", "latin1").toString("base64") });
    }
    await connection.close();
  });

  test("headers can be encoded, to measure them", () => {
    const headers = natsHeaders();
    headers.set("id", "1");
    const encoded = (headers as unknown as { encode(): Uint8Array }).encode();
    expect(Buffer.from(encoded).toString()).toBe("NATS/1.0\r\nid: 1\r\n\r\n");
  });

  test("sockets of an attempt to connect are known, and destroyed with it", async () => {
    let accepted = () => {};
    let closed = () => {};
    const reached = new Promise<void>((resolve) => {
      accepted = resolve;
    });
    const givenUp = new Promise<void>((resolve) => {
      closed = resolve;
    });
    await using server = await startServer((socket) => {
      accepted();
      socket.on("close", closed).resume();
    });
    const { outcome, destroy } = connectTracked({
      servers: `127.0.0.1:${server.port}`,
      reconnect: false,
      timeout: 1000,
    });
    const failed = expect(outcome).rejects.toThrow();
    await within(5000, "the connection", reached);
    destroy();
    await within(5000, "its end", givenUp);
    await failed;
  });
});

describe("amqplib: a connection", () => {
  const frame = (type: number, channel: number, payload: Buffer) => {
    const head = Buffer.alloc(7);
    head[0] = type;
    head.writeUInt16BE(channel, 1);
    head.writeUInt32BE(payload.length, 3);
    return Buffer.concat([head, payload, Buffer.from([0xce])]);
  };
  const method = (channel: number, classId: number, id: number, body: Buffer | number[]) =>
    frame(1, channel, Buffer.concat([Buffer.from([0, classId, 0, id]), Buffer.from(body as number[])]));
  const longText = (text: string) => Buffer.concat([Buffer.from([0, 0, 0, text.length]), Buffer.from(text)]);
  const START = method(
    0,
    10,
    10,
    Buffer.concat([Buffer.from([0, 9, 0, 0, 0, 0]), longText("PLAIN"), longText("en_US")]),
  );
  /** Channels, frame size 8,192, heartbeat 0. */
  const TUNE = method(0, 10, 30, [0, 10, 0, 0, 0x20, 0, 0, 0]);
  const OPEN_OK = method(0, 10, 41, [0]);
  const CLOSE_OK = method(0, 10, 51, []);
  const target = (port: number) =>
    ({
      name: `127.0.0.1:${port}`,
      options: {
        protocol: "amqp",
        hostname: "127.0.0.1",
        port,
        username: "svc",
        password: "none",
        frameMax: 0,
        vhost: "/",
      },
      connectTimeoutMs: 10_000,
    }) as never;
  /** Answers by class and method of the frames that come, whole frames at a time. */
  const startBroker = (bySent: Readonly<Record<string, Buffer>>) =>
    startServer((socket) => {
      let rest = Buffer.alloc(0);
      let greeted = false;
      socket.on("data", (chunk: Buffer) => {
        rest = Buffer.concat([rest, chunk]);
        if (!greeted && rest.length >= 8) {
          greeted = true;
          rest = rest.subarray(8);
          socket.write(START);
        }
        while (rest.length >= 7 && rest.length >= 8 + rest.readUInt32BE(3)) {
          const sent = `${rest.readUInt16BE(7)}.${rest.readUInt16BE(9)}`;
          const answer = rest[0] === 1 ? bySent[sent] : undefined;
          if (answer !== undefined) socket.write(answer);
          rest = rest.subarray(8 + rest.readUInt32BE(3));
        }
      });
    });

  test("knows the frame size agreed on, and reads frames by what readContentHeaders takes over", async () => {
    const header = frame(2, 1, Buffer.from([0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 0xff]));
    const deliver = method(1, 60, 60, [1, 0x74, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0x6b]);
    await using server = await startBroker({
      "10.11": TUNE,
      "10.40": OPEN_OK,
      "10.50": CLOSE_OK,
      "20.10": method(1, 20, 11, [0, 0, 0, 0]),
      "60.20": Buffer.concat([method(1, 60, 21, [1, 0x74]), deliver, header]),
    });
    const connection = await openConnection(target(server.port), new AbortController().signal);
    expect(connection.frameMax).toBe(0x2000);
    const channel = await connection.createChannel();
    const message = await within(
      5000,
      "the message",
      new Promise<unknown>((resolve, reject) => void channel.consume("q", resolve, { consumerTag: "t" }).catch(reject)),
    );
    // The library would decode the byte to U+FFFD.
    expect(message).toMatchObject({ properties: { messageId: "/w==" } });
    await connection.close();
  });

  test("is ended by the signal among the options of its socket", async () => {
    await using hole = await startBlackHole();
    const controller = new AbortController();
    const opening = openConnection(target(hole.port), controller.signal);
    await hole.reached;
    controller.abort(new Error("given up"));
    await expect(within(5000, "the end of the attempt", opening)).rejects.toThrow("given up");
    await eventually(() => expect(hole.givenUp).toBe(1));
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

describe("jsonata", () => {
  test("reads `timeout`, `stack` and `sequence` of its options again at every step, and takes 0 for no timeout", async () => {
    const read = { timeout: 0, stack: 0, sequence: 0 };
    const expression = jsonata("[1..20].($ * 2)", {
      get timeout() {
        read.timeout += 1;
        return 0;
      },
      get stack() {
        read.stack += 1;
        return 100;
      },
      get sequence() {
        read.sequence += 1;
        return 1000;
      },
    });
    await expression.evaluate(null);
    const { timeout, stack, sequence } = { ...read };
    await expression.evaluate(null);
    for (const count of [timeout, stack, sequence]) expect(count).toBeGreaterThan(0);
    expect(timeout).toBeGreaterThan(20);
    expect(read).toEqual({ timeout: 2 * timeout, stack: 2 * stack, sequence: 2 * sequence });
  });

  test("calls the hooks at the entry and the exit of each node, and waits for what they return", async () => {
    const expression = jsonata("{'a': 1, 'b': 2}");
    const order: string[] = [];
    const hook = (name: "entry" | "exit") =>
      expression.assign(
        Symbol.for(`jsonata.__evaluate_${name}`) as unknown as string,
        async (node: { type: string }) => {
          order.push(`${name} ${node.type}`);
          await new Promise(setImmediate);
        },
      );
    hook("entry");
    hook("exit");
    await expect(expression.evaluate(null)).resolves.toEqual({ a: 1, b: 2 });
    expect(order.filter((each) => each === "entry number")).toHaveLength(2);
    expect(order.filter((each) => each === "exit number")).toHaveLength(2);
    expect(order.at(0)).toBe("entry unary");
    expect(order.at(-1)).toBe("exit unary");
  });

  test("has the syntax tree that the checks walk", () => {
    expect(jsonata("{'k': [1, $f(/a+/)]}{x: 1}").ast()).toMatchObject({
      type: "unary",
      value: "{",
      lhs: [
        [
          { type: "string", value: "k" },
          { type: "unary", value: "[", expressions: [{ type: "number" }, { type: "function" }] },
        ],
      ],
      group: { lhs: [[{ type: "path" }, { type: "number" }]] },
    });
    const path = jsonata("a[b=1].c").ast() as { readonly steps?: readonly object[] };
    expect(path).toMatchObject({
      type: "path",
      steps: [
        { type: "name", value: "a" },
        { type: "name", value: "c" },
      ],
    });
    const regex = JSON.stringify(jsonata("$f(/a+/)").ast(), (_, value) =>
      value instanceof RegExp ? `regex ${value}` : value,
    );
    expect(regex).toContain('"value":"regex /a+/g","type":"regex"');
    for (const [text, type] of [
      ["function($x) { 1 }", "lambda"],
      ["$f(?)", "partial"],
      ["1 ~> $f", "apply"],
      ["$eval", "variable"],
    ] as const) {
      expect([text, jsonata(text).ast().type]).toEqual([text, type]);
    }
  });
});
