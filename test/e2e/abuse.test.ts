import { readFileSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { afterEach, beforeAll, beforeEach, expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.ts";
import { ordersTo, type Service, useServices } from "../support/service.ts";

/** What a few senders without credentials can do to the built service, on the loopback interface: its memory stays small, and others are served. */

const MIB = 1024 * 1024;
/** The chart's pod has 512 MiB. */
const MAX_MEMORY = 450 * MIB;
const services = useServices("block");
const sockets: Socket[] = [];
let service: Service;

beforeAll(async () => {
  service = await services.start({
    database: await services.database(),
    config: ordersTo({ url: "http://127.0.0.1:9" }),
    roles: ["ingest"],
  });
});

afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
});

// The most memory is counted anew for each test.
beforeEach(() => writeFileSync(`/proc/${service.process.pid}/clear_refs`, "5"));

/** The most memory that the process has had, in bytes. */
function peakMemory(): number {
  const status = readFileSync(`/proc/${service.process.pid}/status`, "utf8");
  return Number(/^VmHWM:\s*(\d+) kB$/m.exec(status)?.[1]) * 1024;
}

/** A connection that sends what it is given, as fast as the service reads it. */
function open(): {
  readonly socket: Socket;
  readonly received: () => string;
  readonly sent: (data: string) => Promise<void>;
} {
  const socket = connect(service.port, "127.0.0.1");
  sockets.push(socket);
  let received = "";
  socket.setEncoding("latin1").on("data", (text: string) => {
    received += text;
  });
  // The service may cut it off.
  socket.on("error", () => {});
  const sent = (data: string) =>
    new Promise<void>((resolve) => {
      socket.once("close", () => resolve());
      socket.write(data, () => resolve());
    });
  return { socket, received: () => received, sent };
}

const head = (more: string) => `POST /inbox/orders HTTP/1.1\r\nHost: localhost\r\n${more}\r\n\r\n`;
const stored = async (id: string) => (await service.post({ id, type: "created" })).status;

test("four connections with bodies in chunks of one byte take little memory, and others are served meanwhile", async () => {
  const chunks = "1\r\nx\r\n".repeat(1_000_000);
  const senders = Array.from({ length: 4 }, async () => {
    const { sent } = open();
    await sent(head("Transfer-Encoding: chunked") + chunks);
  });
  expect(await stored("beside")).toBe(202);
  await Promise.all(senders);
  expect(await stored("after")).toBe(202);
  expect(peakMemory()).toBeLessThan(MAX_MEMORY);
}, 120_000);

test("four hundred unfinished bodies of 1 MB do not hold the memory, nor the service", async () => {
  const unfinished = head("Content-Length: 1048576") + "x".repeat(1_000_000);
  const attackers = Array.from({ length: 400 }, () => open());
  await Promise.all(attackers.map(({ sent }) => sent(unfinished)));
  await eventually(() => expect(attackers.some(({ received }) => received().includes(" 503 "))).toBe(true), {
    timeoutMs: 30_000,
  });
  expect(await stored("small")).toBe(202);
  // A large message gets the memory of the stalled ones.
  const pad = "x".repeat(1_000_000);
  await eventually(async () => expect((await service.post({ id: "large", pad, type: "created" })).status).toBe(202), {
    timeoutMs: 30_000,
  });
  expect(peakMemory()).toBeLessThan(MAX_MEMORY);
}, 120_000);

test("50,000 requests that are sent ahead on one connection end it, and those of others are served meanwhile", async () => {
  const body = (i: number) => `{"id":"p-${i}","type":"created"}`;
  const ahead = Array.from({ length: 50_000 }, (_, i) => head(`Content-Length: ${body(i).length}`) + body(i)).join("");
  const client = open();
  void client.sent(ahead);
  for (let i = 0; i < 5; i++) expect(await stored(`other-${i}`)).toBe(202);
  await eventually(() => expect(client.socket.destroyed).toBe(true), { timeoutMs: 30_000 });
  expect(peakMemory()).toBeLessThan(MAX_MEMORY);
}, 60_000);
