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
  test("are answered in order up to a hundred; one more ends the connection behind these answers", async () => {
    await using http = await startHttp();
    const release = http.store.hold();
    using client = new RawClient(http.data.port);
    client.send(messages(1000));
    await eventually(() => expect(http.data.inFlight).toBe(101));
    release();
    await client.closed;
    expect(answers(client, 202)).toBe(100);
    expect(client.received).toMatch(/HTTP\/1\.1 503 .*Too many pipelined requests"}$/s);
    expect(http.store.rows.map(({ idempotencyKey }) => idempotencyKey)).toEqual(
      Array.from({ length: 100 }, (_, i) => String(i)),
    );
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

describe("garbage behind good requests", () => {
  test("takes no answer away from them when it is refused before it has come whole", async () => {
    await using http = await startHttp();
    const release = http.store.hold();
    using client = new RawClient(http.data.port);
    client.send(`${message(1)}${postHead(["Content-Length: 100", "Content-Encoding: zstd"])}the beginning`);
    await eventually(() => expect(http.data.inFlight).toBe(2));
    // As long as a sender that has its answer may continue to send: this one has none yet.
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
