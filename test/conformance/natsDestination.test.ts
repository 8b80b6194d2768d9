import { connect, type JetStreamManager } from "nats";
import { createNatsDestination } from "../../src/adapters/destinations/nats/index.ts";
import { Secret } from "../../src/model/secret.ts";
import { describeWith, startNats } from "../support/brokers/index.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { exerciseDestination } from "./destination.ts";
import { destinationEnds, WRONG_PASSWORD } from "./ends.ts";

failOnLeaks();

const LOGIN = { user: "svc", password: "svc-secret" };

describeWith(["nats"], "NATS", () => {
  exercise("nats with JetStream", true);
  exercise("nats without JetStream", false);
});

/** What is published arrives in a stream in both cases: a stream that captures a subject takes core publishes too. */
function exercise(name: string, jetStream: boolean): void {
  exerciseDestination({
    name,
    reconnectMs: 10_000,
    shortestTimeoutMs: 300,
    messageIdHeader: "nats-msg-id",
    wrongPassword: WRONG_PASSWORD,
    oversizedBody: JSON.stringify("x".repeat(1_048_576)),
    nonAsciiHeaders: true,
    isUnacknowledged: !jetStream,
    async start() {
      const server = await startNats(LOGIN);
      await withManager(server.url, (manager) => manager.streams.add({ name: "ORDERS", subjects: ["orders.>"] }));
      const ends = await destinationEnds(server, LOGIN.password, ({ port, password, timeoutMs }, tools) =>
        createNatsDestination(
          {
            subject: "{{ topic }}",
            servers: `127.0.0.1:${port}`,
            username: LOGIN.user,
            password: new Secret(password),
            jetStream,
            timeoutMs,
          },
          tools,
        ),
      );
      return {
        ...ends,
        address: (message) => ({ ...message, address: "orders.created" }),
        arrived: (count) =>
          withManager(server.url, async (manager) => {
            await eventually(async () => (await manager.streams.info("ORDERS")).state.messages >= count);
            const sequences = Array.from({ length: count }, (_, index) => index + 1);
            const stored = await Promise.all(sequences.map((seq) => manager.streams.getMessage("ORDERS", { seq })));
            return stored.map(({ data, header }) => ({
              body: Buffer.from(data),
              headers: Object.fromEntries([...header].map(([key, values]) => [key.toLowerCase(), values.join(", ")])),
            }));
          }),
        async [Symbol.asyncDispose]() {
          await ends[Symbol.asyncDispose]();
          await server[Symbol.asyncDispose]();
        },
      };
    },
  });
}

async function withManager<T>(servers: string, use: (manager: JetStreamManager) => Promise<T>): Promise<T> {
  const client = await connect({ servers, user: LOGIN.user, pass: LOGIN.password, reconnect: false });
  try {
    return await use(await client.jetstreamManager());
  } finally {
    await client.close();
  }
}
