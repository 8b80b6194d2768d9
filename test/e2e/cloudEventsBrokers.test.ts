import { expect, test } from "@jest/globals";
import { connect as connectAmqp } from "amqplib";
import { connect as connectNats } from "nats";
import {
  createTopic,
  describeWith,
  sharedKafka,
  sharedNats,
  sharedRabbitmq,
  unique,
} from "../support/brokers/index.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { databaseConfig, useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

const MODES = ["binary", "structured"] as const;

describeWith(["kafka", "rabbitmq", "nats"], "an event", () => {
  test("is the same behind each broker and in each mode", async () => {
    const [kafka, rabbitmq, nats] = await Promise.all([sharedKafka(), sharedRabbitmq(), sharedNats()]);
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const name = unique("events");
    await createTopic(kafka, name);
    const natsClient = await connectNats({ servers: nats.url });
    const manager = await natsClient.jetstreamManager();
    await manager.streams.add({ name, subjects: [name] });
    await manager.consumers.add(name, { durable_name: "svc", ack_policy: "explicit" as never });
    services.defer(async () => {
      await manager.streams.delete(name);
      await natsClient.close();
    });
    const amqp = await connectAmqp(rabbitmq.url);
    const channel = await amqp.createChannel();
    await channel.assertExchange(name, "fanout", { durable: true });
    await channel.assertQueue(name, { durable: true });
    await channel.bindQueue(name, name, "");
    services.defer(async () => {
      await channel.deleteQueue(name);
      await channel.deleteExchange(name);
      await amqp.close();
    });

    const back = { cloudEvents: true, topic: "back.{{ eventType }}" };
    const kinds = {
      kafka: { bootstrapServers: kafka.bootstrapServers, topic: name },
      rabbitmq: { url: rabbitmq.url, exchange: name, exchangeType: "fanout" },
      nats: { servers: nats.url, subject: name },
    };
    const out = Object.entries(kinds).flatMap(([kind, settings]) =>
      MODES.map((mode) => [`${kind}-${mode}`, { ...settings, cloudEvents: { source: "/svc", mode } }] as const),
    );
    const config = {
      database: databaseConfig(database),
      sources: {
        events: { path: "/events", cloudEvents: true, topic: "out.{{ eventType }}" },
        kafka: { bootstrapServers: kafka.bootstrapServers, topics: [name], groupId: name, ...back },
        rabbitmq: { queueName: name, connectionUrl: rabbitmq.url, ...back },
        nats: { servers: nats.url, stream: name, durable: "svc", ...back },
      },
      destinations: {
        ...Object.fromEntries(out),
        receiver: { baseUrl: receiver.url, cloudEvents: { source: "/svc", mode: "structured" } },
      },
      routes: [
        ...out.map(([destination]) => ({ topicPattern: `out.${destination}`, destination })),
        { topicPattern: "back.**", destination: "receiver" },
      ],
    };
    const service = await services.start({ database, config });
    const sent = out.map(([destination]) => ({
      specversion: "1.0",
      id: `é 1%20"${destination}`,
      source: "/shop?a=%2F",
      type: destination,
      subject: "käse\u{1F600} 1%",
      time: "2026-01-02T03:04:05.123456789+02:00",
      dataschema: "urn:x",
      traceparent: "00-1",
      datacontenttype: destination.startsWith("nats") ? "text/plain; charset=utf-8" : "application/vnd.shop+json",
      data: destination.startsWith("nats") ? "text" : { n: 1 },
    }));
    for (const event of sent) {
      const headers = { "content-type": "application/cloudevents+json" };
      const answer = await service.post(event, { path: "/inbox/events", headers });
      expect([event.type, answer.status]).toEqual([event.type, 202]);
    }
    await eventually(
      async () => {
        const failed = await database.query("SELECT topic, state, last_error FROM outbox WHERE last_error IS NOT NULL");
        const dead = await database.query("SELECT source, state, last_error FROM inbox WHERE state = 'dead'");
        expect([failed, dead]).toEqual([[], []]);
        expect(receiver.requests).toHaveLength(sent.length);
      },
      { timeoutMs: 30_000 },
    );
    const got = receiver.requests.map(({ body }) => JSON.parse(String(body)) as { readonly type: string });
    for (const event of sent) {
      // A string of JSON by now.
      const datacontenttype = event.data === "text" ? "application/json" : event.datacontenttype;
      expect(got.find(({ type }) => type === event.type)).toEqual({ ...event, datacontenttype });
    }
    expect((await service.stop()).code).toBe(0);
  }, 60_000);
});
