import { once } from "node:events";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.ts";
import { useUntilClosed } from "../support/keptConnection.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { freePort } from "../support/ports.ts";
import { ordersTo, useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

const CLEAN = { code: 0, signal: null };

/**
 * From back to back to a third of a second: a stop meets connections in every moment, and each sends again within the
 * second that it has.
 */
const PAUSES_MS = Array.from({ length: 64 }, (_, n) => (n % 2 === 0 ? 0 : n * 5));

/** The same message with each repetition: the first is stored and delivered. */
function message(id: string): string {
  const body = JSON.stringify({ id, type: "created" });
  return `POST /inbox/orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
}

describe("SIGTERM", () => {
  test("lets deliveries in flight finish and gives the waiting rows back", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    let release = () => {};
    const after = new Promise<void>((resolve) => {
      release = resolve;
    });
    receiver.answer = { status: 200, after };
    const service = await services.start({ database, config: ordersTo(receiver, { outbox: { concurrency: 2 } }) });
    await database.query(
      `INSERT INTO outbox (topic, payload) SELECT 'orders.bulk', n::text FROM generate_series(1, 10) n`,
    );
    await receiver.received(2);
    const states = () =>
      database.query("SELECT state, count(*)::int FROM outbox GROUP BY state ORDER BY state") as Promise<unknown>;
    await eventually(async () => expect(await states()).toEqual([{ state: "processing", count: 10 }]));

    service.process.kill("SIGTERM");
    await eventually(async () => {
      expect(await states()).toEqual([
        { state: "pending", count: 8 },
        { state: "processing", count: 2 },
      ]);
    });
    release();
    expect(await service.process.exited).toEqual(CLEAN);
    expect(await states()).toEqual([
      { state: "pending", count: 8 },
      { state: "sent", count: 2 },
    ]);
    expect(receiver.requests).toHaveLength(2);
    expect(await database.query("SELECT id FROM outbox WHERE claim_token IS NOT NULL OR attempt > 0")).toEqual([]);
  });

  test("leaves a delivery that outlasts outbox.shutdownTimeoutMs to its lease", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    let release = () => {};
    const after = new Promise<void>((resolve) => {
      release = resolve;
    });
    receiver.answer = { status: 200, after };
    const config = ordersTo(receiver, { outbox: { shutdownTimeoutMs: 300 } });
    const service = await services.start({ database, config });
    await service.post({ id: "m-1", type: "created" });
    await receiver.received(1);
    expect(await service.stop()).toEqual(CLEAN);
    release();
    const rows = await database.query("SELECT state, lease_expires_at > now() AS leased, attempt FROM outbox");
    expect(rows).toEqual([{ state: "processing", leased: true, attempt: 0 }]);
  });

  test("answers the request in flight, and later ones with 503", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const service = await services.start({ database, config: ordersTo(receiver) });
    const headers = { expect: "100-continue", "transfer-encoding": "chunked" };
    const to = { host: "127.0.0.1", port: service.port, path: "/inbox/orders", method: "POST", agent: false as const };
    const slow = httpRequest({ ...to, headers });
    slow.flushHeaders();
    // The service asks for the body: from here on the request is in flight.
    await once(slow, "continue");
    service.process.kill("SIGTERM");
    await service.process.waitForLine(/"msg":"stopping/);

    const refused = await service.post({ id: "late", type: "created" });
    expect([refused.status, refused.json()]).toEqual([503, { error: "Service is shutting down" }]);
    expect((await service.get("/health/ready")).status).toBe(503);

    slow.end('{"id":"in-flight","type":"created"}');
    const [answer] = (await once(slow, "response")) as [IncomingMessage];
    answer.resume();
    expect(answer.statusCode).toBe(202);
    expect(await service.process.exited).toEqual(CLEAN);
    expect(await database.query("SELECT idempotency_key FROM inbox")).toEqual([{ idempotency_key: "in-flight" }]);
    await expect(service.post({ id: "too-late" })).rejects.toThrow(/ECONNREFUSED/);
  });

  test("resets no kept connection: an answer says that it ends, on both ports", async () => {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const managementPort = await freePort();
    const config = ordersTo(receiver, { server: { managementPort } });
    const service = await services.start({ database, config });
    const requests = [
      { port: service.port, text: message("m-1") },
      { port: managementPort, text: "GET /health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n" },
    ];
    const kept = new Set<number>();
    const connections = requests
      .flatMap((request) => PAUSES_MS.map((pauseMs) => ({ ...request, pauseMs })))
      .map(({ port, text, pauseMs }, n) => useUntilClosed(port, text, pauseMs, () => kept.add(n)));
    // Every pace is somewhere between two requests by then.
    await eventually(() => kept.size === connections.length);
    await delay(Math.max(...PAUSES_MS));
    service.process.kill("SIGTERM");

    const ends = await Promise.all(connections);
    expect(await service.process.exited).toEqual(CLEAN);
    expect(ends.filter(({ lost, announced }) => lost || !announced)).toEqual([]);
    for (const { statuses } of ends) {
      // What was in flight is answered as usual, and everything behind it is refused, once.
      expect(statuses.slice(0, -1).filter((status) => status >= 300)).toEqual([]);
    }
  });

  // An idle one: trace.test.ts.
  test("ends a service that still waits for its database", async () => {
    const nowhere = { url: "jdbc:postgresql://127.0.0.1:1/none", username: "svc", password: "none" };
    const config = ordersTo({ url: "http://127.0.0.1:9" }, { database: nowhere });
    const waiting = services.processes.svc(["--config", services.configFile(config)]);
    await waiting.waitForLine(/waiting for the database/);
    waiting.kill("SIGTERM");
    expect(await waiting.exited).toEqual(CLEAN);
  });
});
