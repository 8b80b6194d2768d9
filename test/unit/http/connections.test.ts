import { setTimeout } from "node:timers/promises";
import { describe, expect, test } from "@jest/globals";
import { LINGER_MS } from "../../../src/http/exchange.ts";
import { eventually } from "../../support/eventually.ts";
import { failOnLeaks } from "../../support/leaks.ts";
import { postHead, RawClient, startHttp } from "./harness.ts";

const never = new AbortController().signal;
const body = (id: number) => `{"id":${id}}`;
/** A whole request of its own id. */
const message = (id: number) => `${postHead([`Content-Length: ${body(id).length}`])}${body(id)}`;
const messages = (count: number) => Array.from({ length: count }, (_, i) => message(i)).join("");
const answers = (client: RawClient, status: number) => client.received.split(`HTTP/1.1 ${status} `).length - 1;

failOnLeaks();

describe("requests that are sent ahead of their answers", () => {
  test("are in work 16 at a time, and all of them get their answers in order", async () => {
    await using http = await startHttp();
    const release = http.store.hold();
    using client = new RawClient(http.data.port);
    client.send(messages(1000));
    await eventually(() => expect(http.store.calls.length).toBeGreaterThan(0));
    // Those of another connection are not behind them.
    const other = http.post('{"id":"other"}');
    await eventually(() => expect(http.data.inFlight).toBeGreaterThan(16));
    release();
    expect((await other).status).toBe(202);
    expect(http.store.rows.findIndex(({ idempotencyKey }) => idempotencyKey === "other")).toBeLessThanOrEqual(32);
    await eventually(() => expect(answers(client, 202)).toBe(1000));
    const ids = http.store.rows.map(({ idempotencyKey }) => idempotencyKey).filter((key) => key !== "other");
    expect(ids).toEqual(Array.from({ length: 1000 }, (_, i) => String(i)));
    expect(http.data.inFlight).toBe(0);
  });

  test("are not read on while those before them have no answer", async () => {
    await using http = await startHttp();
    const release = http.store.hold();
    using client = new RawClient(http.data.port);
    client.send(messages(50_000));
    await eventually(() => expect(http.data.inFlight).toBeGreaterThan(16));
    // Whatever was on its way has come when a request that was sent later is in work.
    for (let i = 0; i < 5; i++) {
      const before = http.store.calls.length;
      const later = http.post(`{"id":"later-${i}"}`);
      await eventually(() => expect(http.data.inFlight).toBeGreaterThan(before));
      void later.catch(() => {});
    }
    // Two reads of 64 KiB hold less than this.
    expect(http.data.inFlight).toBeLessThan(3000);
    client.destroy();
    release();
  });

  test("end the connection, after the answers to those in work, when too many wait in memory", async () => {
    await using http = await startHttp({ server: { maxWaiting: 100 } });
    const release = http.store.hold();
    using client = new RawClient(http.data.port);
    client.send(messages(1000));
    await eventually(() => expect(http.data.inFlight).toBe(116));
    release();
    await client.closed;
    expect(answers(client, 202)).toBe(116);
    expect(answers(client, 503)).toBe(1);
    expect(client.received).toMatch(/Too many requests were sent ahead of their answers"}$/);
    expect(http.data.inFlight).toBe(0);
  });

  test("of a connection that breaks off are not waited for when the service stops", async () => {
    await using http = await startHttp({ drainMs: 60_000 });
    const release = http.store.hold();
    using client = new RawClient(http.data.port);
    client.send(messages(10));
    await eventually(() => expect(http.data.inFlight).toBe(10));
    client.reset();
    await eventually(() => expect(http.data.inFlight).toBe(0));
    await http.data.stop(never);
    release();
  });
});

test("a request for an upgrade that ends before it is whole is not waited for", async () => {
  await using http = await startHttp();
  using client = new RawClient(http.data.port);
  client.end(`${message(1)}${postHead(["Content-Length: 10", "Connection: Upgrade", "Upgrade: websocket"])}abc`);
  await client.closed;
  expect([answers(client, 202), answers(client, 400)]).toEqual([1, 1]);
  expect(http.data.inFlight).toBe(0);
});

describe("a CONNECT request behind good requests", () => {
  const connect = "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\nand more";

  test("takes no answer away from them", async () => {
    await using http = await startHttp();
    const release = http.store.hold();
    using client = new RawClient(http.data.port);
    client.send(messages(20) + connect);
    await eventually(() => expect(http.data.inFlight).toBe(20));
    release();
    await client.closed;
    expect(answers(client, 202)).toBe(20);
    expect(client.received).toMatch(/HTTP\/1\.1 501 .*"CONNECT is not supported"}$/s);
    expect(http.data.inFlight).toBe(0);
  });

  test("holds up no stop, nor does its reset end the process", async () => {
    await using http = await startHttp({ drainMs: 10 });
    const release = http.store.hold();
    using reset = new RawClient(http.data.port);
    reset.send(message(1) + connect);
    await eventually(() => expect(http.data.inFlight).toBe(1));
    reset.reset();
    await eventually(() => expect(http.data.inFlight).toBe(0));
    using client = new RawClient(http.data.port);
    client.send(message(2) + connect);
    await eventually(() => expect(http.data.inFlight).toBe(1));
    await http.data.stop(never);
    await client.closed;
    release();
  });
});

describe("garbage behind good requests", () => {
  test("takes no answer away from them when it is refused before it has come whole", async () => {
    await using http = await startHttp();
    const release = http.store.hold();
    using client = new RawClient(http.data.port);
    client.send(`${message(1)}${postHead(["Content-Length: 100", "Content-Encoding: zstd"])}the beginning`);
    await eventually(() => expect(http.data.inFlight).toBe(2));
    // As long as a sender that has its answer may go on sending: this one has none yet.
    await setTimeout(1.5 * LINGER_MS);
    release();
    await client.until(" 415 ");
    expect(client.received).toMatch(/^HTTP\/1\.1 202 /);
    await client.closed;
  });

  test("takes no answer away from them, gets a 400 of its own and the end of the connection", async () => {
    await using http = await startHttp({ drainMs: 60_000 });
    const release = http.store.hold();
    using client = new RawClient(http.data.port);
    client.send(`${messages(2)}\x00\x01garbage\r\n\r\n`);
    await eventually(() => expect(http.store.calls).toHaveLength(1));
    expect(client.received).toBe("");
    release();
    await client.closed;
    expect(client.received.match(/HTTP\/1.1 \d+/g)).toEqual(["HTTP/1.1 202", "HTTP/1.1 202", "HTTP/1.1 400"]);
    expect(client.received).toMatch(/\{"error":"Malformed HTTP request"\}$/);
    expect(http.data.inFlight).toBe(0);
    await http.data.stop(never);
  });

  test("in the body of the last one refuses that one only", async () => {
    await using http = await startHttp({ drainMs: 60_000 });
    const release = http.store.hold();
    using client = new RawClient(http.data.port);
    client.send(`${message(1)}${postHead(["Transfer-Encoding: chunked"])}zz\r\n`);
    await eventually(() => expect(http.store.calls).toHaveLength(1));
    release();
    await client.closed;
    expect(client.received.match(/HTTP\/1.1 \d+/g)).toEqual(["HTTP/1.1 202", "HTTP/1.1 400"]);
    await eventually(() => expect(http.data.inFlight).toBe(0));
  });

  test("alone is answered too, in JSON", async () => {
    await using http = await startHttp();
    using client = new RawClient(http.data.port);
    client.send("no HTTP\r\n\r\n");
    await client.closed;
    expect(client.received).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/);
    expect(client.received).toMatch(/\{"error":"Malformed HTTP request"\}$/);
  });

  test("headers without end are answered with 431", async () => {
    await using http = await startHttp();
    using client = new RawClient(http.data.port);
    client.send(postHead([`X-Long: ${"x".repeat(20_000)}`]));
    await client.closed;
    expect(client.received).toMatch(/^HTTP\/1\.1 431 /);
  });
});

describe("a sender that ends its side", () => {
  test("after its request gets the answer", async () => {
    await using http = await startHttp();
    const release = http.store.hold();
    using client = new RawClient(http.data.port);
    client.end(message(1));
    await eventually(() => expect(http.store.calls).toHaveLength(1));
    release();
    await client.closed;
    expect(client.received).toMatch(/^HTTP\/1\.1 202 /);
    expect(http.data.inFlight).toBe(0);
  });

  test("after several requests gets all answers", async () => {
    await using http = await startHttp();
    using client = new RawClient(http.data.port);
    client.end(messages(100));
    await client.closed;
    expect(answers(client, 202)).toBe(100);
    expect(http.data.inFlight).toBe(0);
  });

  test("in the middle of a body leaves nothing behind", async () => {
    await using http = await startHttp({ drainMs: 60_000 });
    using client = new RawClient(http.data.port);
    client.end(`${postHead(["Content-Length: 100"])}{`);
    await client.closed;
    expect(client.received).toMatch(/^HTTP\/1\.1 400 /);
    expect(http.store.rows).toEqual([]);
    await http.data.stop(never);
  });
});

describe("the bounds of a server", () => {
  test("end a request that does not come to its end in time with 408", async () => {
    await using http = await startHttp({ server: { requestTimeoutMs: 300 } });
    using client = new RawClient(http.data.port);
    client.send(postHead(["Content-Length: 1000"]));
    const drip = setInterval(() => client.send(" "), 20);
    await client.closed;
    clearInterval(drip);
    expect(client.received).toMatch(/^HTTP\/1\.1 408 /);
    await eventually(() => expect(http.data.inFlight).toBe(0));
  });

  test("refuse connections above their number, and say so in the log", async () => {
    await using http = await startHttp({ server: { maxConnections: 2 } });
    using first = new RawClient(http.data.port);
    using second = new RawClient(http.data.port);
    for (const client of [first, second]) {
      client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
      await client.until("running");
    }
    using third = new RawClient(http.data.port);
    await third.closed;
    expect(http.lines).toContainEqual({
      level: "warn",
      message: "connections are refused: too many are open",
      fields: { maxConnections: 2 },
    });
  });

  test.each(["data", "management"] as const)("refuse a request with two Host headers on the %s port", async (port) => {
    await using http = await startHttp({ management: true });
    using client = new RawClient(http[port]?.port ?? 0);
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\nhost: b.example\r\n\r\n");
    expect(await client.until("more than one Host header")).toMatch(/^HTTP\/1\.1 400 /);
    await client.closed;
  });
});
