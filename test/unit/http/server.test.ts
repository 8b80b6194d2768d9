import { randomUUID } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import { HttpServer } from "../../../src/http/server.ts";
import { eventually } from "../../support/eventually.ts";
import { failOnLeaks } from "../../support/leaks.ts";
import { recordingLog } from "../../support/recorders.ts";
import { postHead, RawClient, startHttp } from "./harness.ts";

const SHUTTING_DOWN = '{"error":"Service is shutting down"}';
const GET = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const never = new AbortController().signal;

failOnLeaks();

function server(port = 0) {
  const { log } = recordingLog();
  const listener = (_: unknown, res: { end(): void }) => res.end();
  return new HttpServer({ name: "http", port, portKey: "server.httpPort", host: "127.0.0.1", listener, log });
}

describe("shutdown", () => {
  test("lets a request in flight finish and answers new ones with 503 meanwhile, whatever their path", async () => {
    await using http = await startHttp();
    const release = http.store.hold();
    const inFlight = http.post('{"id":1}');
    await eventually(() => expect(http.store.calls).toHaveLength(1));
    const stopped = http.data.stop(never);
    for (const request of ["POST /inbox/orders", "GET /", "GET /health/live", "GET /nowhere"]) {
      using client = new RawClient(http.data.port);
      client.send(`${request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n`);
      const answer = await client.until(SHUTTING_DOWN);
      expect(answer).toMatch(/^HTTP\/1\.1 503 /);
      expect(answer).toContain("Connection: close");
      await client.closed;
    }
    release();
    expect((await inFlight).status).toBe(202);
    await stopped;
    expect(http.lines.filter(({ level }) => level === "warn")).toEqual([]);
  });

  test("cuts off a body that does not come to its end in time", async () => {
    await using http = await startHttp({ drainMs: 50 });
    using client = new RawClient(http.data.port);
    client.send(postHead(["Content-Length: 1000", "Expect: 100-continue"]));
    await client.until("100 Continue");
    await http.data.stop(never);
    await client.closed;
    expect(client.received).toBe("HTTP/1.1 100 Continue\r\n\r\n");
    expect(http.lines).toContainEqual({
      level: "warn",
      message: "requests in flight are cut off",
      fields: { requests: 1 },
    });
  });

  test("answers the next request of a kept connection as its last, and waits no longer than for that", async () => {
    await using http = await startHttp({ idleGraceMs: 60_000 });
    using kept = new RawClient(http.data.port);
    kept.send(GET);
    await kept.until("Service is running!");
    const stopped = http.data.stop(never);
    kept.send(GET);
    const answer = await kept.until(SHUTTING_DOWN);
    expect(answer.slice(answer.indexOf("503"))).toContain("Connection: close");
    await kept.closed;
    await stopped;
  });

  test("closes kept connections without a request after the grace, and at once when the cutoff comes", async () => {
    await using http = await startHttp({ idleGraceMs: 50, drainMs: 60_000 });
    await using other = await startHttp({ idleGraceMs: 60_000, drainMs: 60_000 });
    using idle = new RawClient(http.data.port);
    using silent = new RawClient(other.data.port);
    await Promise.all([http.post('{"id":1}'), other.post('{"id":1}')]);
    idle.send(GET);
    await idle.until("Service is running!");
    const since = performance.now();
    await http.data.stop(never);
    expect(performance.now() - since).toBeGreaterThanOrEqual(49);
    await idle.closed;

    const cutoff = new AbortController();
    const stopped = other.data.stop(cutoff.signal);
    cutoff.abort();
    await stopped;
    await silent.closed;
  });

  test("announces with the answer to a request in flight that its connection ends", async () => {
    await using http = await startHttp({ idleGraceMs: 60_000 });
    const release = http.store.hold();
    using client = new RawClient(http.data.port);
    client.send(`${postHead(["Content-Length: 8"])}{"id":1}`);
    await eventually(() => expect(http.store.calls).toHaveLength(1));
    const stopped = http.data.stop(never);
    release();
    expect(await client.until("messageId")).toContain("Connection: close");
    await client.closed;
    await stopped;
  });
});

describe("an HTTP server", () => {
  test("names the port and its key when another process has it", async () => {
    const first = server();
    await first.start();
    const second = server(first.port);
    await expect(second.start()).rejects.toThrow(
      `cannot listen on port ${first.port} of 127.0.0.1 (server.httpPort): another process listens there already`,
    );
    await second.stop(never);
    await first.stop(never);
  });

  test.each([["127.0.0.1"], ["::1"], ["[::1]"]])("listens on %s and on no other address", async (host) => {
    // Another process may have the same port of another address: what counts is who answers.
    const name = randomUUID();
    await using http = await startHttp({ server: { host, listener: (_req, res) => res.end(name) } });
    const answers = (address: string) =>
      fetch(`http://${address.includes(":") ? `[${address}]` : address}:${http.data.port}/`)
        .then(async (response) => (await response.text()) === name)
        .catch(() => false);
    const own = host.replace(/[[\]]/g, "");
    for (const address of ["127.0.0.1", "127.0.0.2", "::1"]) {
      expect([address, await answers(address)]).toEqual([address, address === own]);
    }
  });

  test("names the keys of an address that the machine does not have", async () => {
    const listener = () => {};
    const keys = { portKey: "server.httpPort", hostKey: "server.host" };
    const options = { name: "http", port: 0, host: "192.0.2.1", ...keys, listener, log: recordingLog().log };
    await expect(new HttpServer(options).start()).rejects.toThrow(
      "cannot listen on port 0 of 192.0.2.1 (server.httpPort, server.host): this machine does not have the address",
    );
  });

  test("may be stopped before it starts, while it starts, and twice", async () => {
    const unstarted = server();
    await unstarted.stop(never);
    await unstarted.start();
    expect(unstarted.port).toBe(0);

    const starting = server();
    const started = starting.start();
    await Promise.all([starting.stop(never), starting.stop(never), started]);
    expect(starting.port).toBe(0);
  });
});
