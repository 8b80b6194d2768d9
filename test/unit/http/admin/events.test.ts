import { once } from "node:events";
import { createServer, type IncomingMessage, request } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, test } from "@jest/globals";
import { EventStream } from "../../../../src/http/admin/events.ts";
import { eventually } from "../../../support/eventually.ts";
import { failOnLeaks } from "../../../support/leaks.ts";
import { recordingLog } from "../../../support/recorders.ts";

const ends: (() => void | Promise<void>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});
failOnLeaks();

/** A stream behind a server; `read` counts its calls. */
async function start(options: Partial<ConstructorParameters<typeof EventStream>[0]> = {}, isAdmitted = () => true) {
  let reads = 0;
  const { log, lines } = recordingLog();
  const read = async (): Promise<object> => ({ n: ++reads });
  const stream = new EventStream({ read, log, intervalMs: 20, heartbeatMs: 10_000, ...options });
  const server = createServer((_req, res) => stream.follow(res, isAdmitted)).listen(0, "127.0.0.1");
  await once(server, "listening");
  ends.push(async () => {
    await stream.stop();
    server.close();
    server.closeAllConnections();
    await once(server, "close");
  });
  const { port } = server.address() as AddressInfo;
  return { stream, lines, reads: () => reads, follow: (method?: string) => follow(port, method) };
}

async function follow(port: number, method = "GET") {
  const sent = request({ host: "127.0.0.1", port, method, agent: false }).end();
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  const client = {
    status: response.statusCode,
    headers: response.headers,
    text: "",
    isEnded: false,
    leave: () => sent.destroy(),
  };
  response.setEncoding("utf8").on("data", (chunk: string) => {
    client.text += chunk;
  });
  response.once("end", () => {
    client.isEnded = true;
  });
  response.on("error", () => {});
  sent.on("error", () => {});
  return client;
}

describe("events", () => {
  test("come from one reader for all clients, which reads only while somebody follows", async () => {
    const events = await start();
    expect(events.reads()).toBe(0);
    const [first, second] = [await events.follow(), await events.follow()];
    expect(first.headers["content-type"]).toBe("text/event-stream; charset=utf-8");
    await eventually(() => expect(second.text).toContain('event: overview\ndata: {"n":4}\n\n'));
    await eventually(() => expect(first.text).toContain('event: overview\ndata: {"n":4}\n\n'));
    first.leave();
    second.leave();
    await eventually(async () => {
      const before = events.reads();
      // Longer than three intervals.
      await new Promise((resolve) => setTimeout(resolve, 70));
      expect(events.reads()).toBe(before);
    });
    const third = await events.follow();
    await eventually(() => expect(third.text).toContain(`{"n":${events.reads()}}`));
  });

  test("report a database that is away, once in the log, and its return", async () => {
    let isAway = true;
    const read = async () => {
      if (isAway) throw new Error("no route to host");
      return { back: true };
    };
    const events = await start({ read });
    const client = await events.follow();
    await eventually(() => expect(client.text.split("event: unavailable").length).toBeGreaterThan(3));
    expect(client.text).toContain('data: {"error":"Storage failed"}');
    expect(client.text).not.toContain("no route");
    isAway = false;
    await eventually(() => expect(client.text).toContain('event: overview\ndata: {"back":true}'));
    expect(events.lines.map(({ message }) => message)).toEqual(["the overview cannot be read"]);
  });

  test("go to so many clients and no more", async () => {
    const events = await start({ maxClients: 2 });
    const first = await events.follow();
    await events.follow();
    const third = await events.follow();
    expect([third.status, third.headers["retry-after"]]).toEqual([503, "30"]);
    first.leave();
    await eventually(async () => expect((await events.follow()).status).toBe(200));
  });

  test("end with the service", async () => {
    const events = await start();
    const client = await events.follow();
    await eventually(() => expect(client.text).toContain("overview"));
    await events.stream.stop();
    await eventually(() => expect(client.isEnded).toBe(true));
    const late = await events.follow();
    await eventually(() => expect(late.isEnded).toBe(true));
  });

  test.each([
    ["event", { intervalMs: 20 }],
    ["comment", { intervalMs: 60_000, heartbeatMs: 20 }],
  ])("end in place of the first %s after the credentials have ceased to hold", async (_, options) => {
    let holds = true;
    const events = await start(options, () => holds);
    const client = await events.follow();
    await eventually(() => expect(client.text).toContain("overview"));
    holds = false;
    const next = events.reads() + 1;
    await eventually(() => expect(client.isEnded).toBe(true));
    expect(client.text).not.toContain(`{"n":${next}}`);
  });
});
