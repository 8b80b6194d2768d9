import { once } from "node:events";
import { type AddressInfo, connect as connectSocket, createServer, type Socket } from "node:net";
import { type ConfirmChannel, connect } from "amqplib";
import { createRabbitmqDestination } from "../../src/adapters/destinations/rabbitmq/index.ts";
import type { RabbitmqDestinationConfig } from "../../src/adapters/destinations/rabbitmq/schema.ts";
import { createRabbitmqSource } from "../../src/adapters/sources/rabbitmq/index.ts";
import type { RabbitmqSourceConfig } from "../../src/adapters/sources/rabbitmq/schema.ts";
import type { Destination } from "../../src/ports/destination.ts";
import type { Log } from "../../src/ports/runtime.ts";
import type { Intake, Source } from "../../src/ports/source.ts";
import { recordingLog } from "../support/recorders.ts";

const clock = { now: () => Date.now(), monotonic: () => performance.now() };

/** A destination with the defaults of the configuration. */
export function destinationAt(
  url: string,
  options: Partial<RabbitmqDestinationConfig> & { readonly timeoutMs?: number; readonly log?: Log } = {},
): Destination {
  const { timeoutMs = 30_000, log = recordingLog().log, ...config } = options;
  return createRabbitmqDestination(
    {
      url,
      exchange: "{{ topic }}",
      exchangeType: "topic",
      routingKeyTemplate: "{{ topic }}",
      deliveryMode: "persistent",
      ...config,
    },
    { log, clock, random: Math.random, timeoutMs },
  );
}

/** A source with the defaults of the configuration. */
export function sourceAt(
  connectionUrl: string,
  queueName: string,
  intake: Intake,
  options: Partial<RabbitmqSourceConfig> & { readonly log?: Log } = {},
): Source {
  const { log = recordingLog().log, ...config } = options;
  return createRabbitmqSource(
    { connectionUrl, queueName, prefetchCount: 10, declareQueue: false, eventTypeFromHeader: false, ...config },
    { name: "orders", intake, log, clock, random: Math.random },
  );
}

/** Does something on a channel with confirms, on a connection of its own. */
export async function withChannel<T>(url: string, work: (channel: ConfirmChannel) => Promise<T>): Promise<T> {
  const connection = await connect(url);
  // Its end is seen where it matters: the work rejects.
  connection.on("error", () => {});
  try {
    const channel = await connection.createConfirmChannel();
    channel.on("error", () => {});
    const result = await work(channel);
    // The connection's close would overtake what the channel has still to send.
    await channel.close();
    return result;
  } finally {
    await connection.close().catch(() => {});
  }
}

/** What a broker sends to say that it blocks publishers (RabbitMQ's extension "Blocked Connection Notifications"). */
export function blockedFrame(reason: string): Buffer {
  return methodFrame(60, Buffer.from([reason.length, ...Buffer.from(reason)]));
}

export function unblockedFrame(): Buffer {
  return methodFrame(61, Buffer.alloc(0));
}

/** A method of the class `connection`, on channel 0. */
function methodFrame(method: number, fields: Buffer): Buffer {
  const payload = Buffer.concat([Buffer.from([0, 10, 0, method]), fields]);
  const head = Buffer.from([1, 0, 0, 0, 0, 0, 0]);
  head.writeUInt32BE(payload.length, 3);
  return Buffer.concat([head, payload, Buffer.from([0xce])]);
}

/** A proxy in front of a broker that can put frames of its own between the broker's. */
export interface InjectingProxy {
  readonly port: number;
  /** Sends this to every client; only while the broker is silent, so that no frame is cut in two. */
  inject(frame: Buffer): void;
  close(): Promise<void>;
}

export async function startInjectingProxy(target: {
  readonly host: string;
  readonly port: number;
}): Promise<InjectingProxy> {
  const clients = new Set<Socket>();
  const server = createServer((near) => {
    const far = connectSocket(target.port, target.host);
    near.pipe(far).pipe(near);
    clients.add(near);
    const end = () => {
      clients.delete(near);
      near.destroy();
      far.destroy();
    };
    for (const socket of [near, far]) socket.on("error", () => {}).on("close", end);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    inject(frame) {
      for (const client of clients) client.write(frame);
    },
    async close() {
      const closed = once(server, "close");
      server.close();
      for (const client of clients) client.destroy();
      await closed;
    },
  };
}
