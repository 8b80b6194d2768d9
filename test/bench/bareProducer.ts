import { createInterface } from "node:readline";
import { connect as connectRabbitmq } from "amqplib";
import { Kafka, logLevel, Partitioners } from "kafkajs";
import { connect as connectNats, headers } from "nats";
import { Pool } from "undici";
import { v7 as uuidv7 } from "uuid";
import { BODY } from "./body.ts";

/**
 * The bare client of a kind of destination as a process of its own, with the same acknowledgements. Arguments: kind, address, and the exchange, topic,
 * subject or path. Prints 0; then for an input line `count inFlight` publishes that many 1 kB messages, of which so many wait for their
 * acknowledgement at a time, and prints the ms it took.
 */
const [kind = "", address = "", place = ""] = process.argv.slice(2);

type Publish = (count: number, inFlight: number) => Promise<void>;

/** Keeps `inFlight` calls of `publishOne` running until `count` are done. */
function concurrently(publishOne: (n: number) => Promise<unknown>): Publish {
  return async (count, inFlight) => {
    let next = 0;
    const lane = async () => {
      while (next < count) {
        next += 1;
        await publishOne(next);
      }
    };
    await Promise.all(Array.from({ length: inFlight }, lane));
  };
}

async function rabbitmq(): Promise<Publish> {
  const channel = await (await connectRabbitmq(address)).createConfirmChannel();
  await channel.assertExchange(place, "topic", { durable: true });
  const body = Buffer.from(BODY);
  return concurrently(
    () =>
      new Promise<void>((resolve, reject) => {
        const messageId = uuidv7();
        const options = { mandatory: true, persistent: true, messageId, headers: { "x-message-id": messageId } };
        channel.publish(place, "bench", body, options, (error) => (error ? reject(error) : resolve()));
      }),
  );
}

async function kafka(): Promise<Publish> {
  const client = new Kafka({ brokers: [address], logLevel: logLevel.NOTHING });
  const producer = client.producer({
    idempotent: true,
    maxInFlightRequests: 1,
    createPartitioner: Partitioners.DefaultPartitioner,
  });
  await producer.connect();
  // What is in flight together goes in one request, as its documentation advises.
  return async (count, inFlight) => {
    for (let done = 0; done < count; done += inFlight) {
      const messages = Array.from({ length: Math.min(inFlight, count - done) }, (_, n) => ({
        key: `key-${(done + n) % 500}`,
        value: BODY,
        headers: { "x-message-id": uuidv7() },
      }));
      await producer.sendBatch({ acks: -1, topicMessages: [{ topic: place, messages }] });
    }
  };
}

async function nats(): Promise<Publish> {
  const stream = (await connectNats({ servers: address })).jetstream();
  return concurrently(() => {
    const msgID = uuidv7();
    const all = headers();
    all.set("x-message-id", msgID);
    return stream.publish(place, BODY, { msgID, headers: all });
  });
}

async function http(): Promise<Publish> {
  const pool = new Pool(address, { connections: 256, pipelining: 1 });
  return concurrently(async () => {
    const sent = { "content-type": "application/json", "x-message-id": uuidv7() };
    const { statusCode, body } = await pool.request({ method: "POST", path: place, body: BODY, headers: sent });
    await body.dump();
    if (statusCode >= 300) throw new Error(`status ${statusCode}`);
  });
}

const KINDS: Readonly<Record<string, () => Promise<Publish>>> = { rabbitmq, kafka, nats, http };

const open = KINDS[kind];
if (open === undefined) throw new Error(`no kind ${kind}: there are ${Object.keys(KINDS).join(", ")}`);
const publish = await open();
process.stdout.write("0\n");
createInterface({ input: process.stdin }).on("line", (line) => {
  const [count = 0, inFlight = 1] = line.split(" ").map(Number);
  const startedAt = performance.now();
  publish(count, inFlight).then(
    () => process.stdout.write(`${performance.now() - startedAt}\n`),
    (error: unknown) => {
      throw error;
    },
  );
});
process.on("SIGTERM", () => process.exit(0));
