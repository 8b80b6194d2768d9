import { connect, headers as emptyHeaders, type JetStreamManager, type NatsConnection } from "nats";
import { createNatsSource } from "../../src/adapters/sources/nats/index.ts";
import { Secret } from "../../src/model/secret.ts";
import { describeWith, startNats } from "../support/brokers/index.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { sourceEnds } from "./ends.ts";
import { exerciseSource, type ProducedMessage } from "./source.ts";

failOnLeaks();

const LOGIN = { user: "svc", password: "svc-secret" };
const STREAM = "ORDERS";
const DURABLE = "svc";
/** Short, since some tests wait until messages come again. */
const ACK_WAIT_MS = 2000;

describeWith(["nats"], "NATS", () => {
  exerciseSource({
    name: "nats",
    reconnectMs: 10_000,
    async start() {
      const server = await startNats(LOGIN);
      const client = new Client(server.url);
      await client.manage((manager) => manager.streams.add({ name: STREAM, subjects: ["orders.>"] }));
      const ends = await sourceEnds(server, LOGIN.password, ({ port, password, batchSize }, tools) =>
        createNatsSource(
          {
            servers: `127.0.0.1:${port}`,
            username: LOGIN.user,
            password: new Secret(password),
            stream: STREAM,
            durable: DURABLE,
            idempotencyFrom: "body",
            eventTypeFromHeader: false,
            ackWaitMs: ACK_WAIT_MS,
            batchSize: batchSize ?? 100,
          },
          tools,
        ),
      );
      return {
        ...ends,
        send: (messages) => client.send(messages),
        unacknowledged: () =>
          client.manage(async (manager) => {
            const { num_pending: waiting, num_ack_pending: delivered } = await manager.consumers.info(STREAM, DURABLE);
            return waiting + delivered;
          }),
        async [Symbol.asyncDispose]() {
          await ends[Symbol.asyncDispose]();
          await client.close();
          await server[Symbol.asyncDispose]();
        },
      };
    },
  });
});

/** The producer's connection, made again when the server was away. */
class Client {
  readonly #servers: string;
  #connection: NatsConnection | undefined;

  constructor(servers: string) {
    this.#servers = servers;
  }

  async manage<T>(use: (manager: JetStreamManager) => Promise<T>): Promise<T> {
    return use(await (await this.#connected()).jetstreamManager());
  }

  async send(messages: readonly ProducedMessage[]): Promise<void> {
    const stream = (await this.#connected()).jetstream({ timeout: 30_000 });
    for (const { body, headers = {} } of messages) {
      const sent = emptyHeaders();
      for (const [name, value] of Object.entries(headers)) sent.append(name, value);
      await stream.publish("orders.created", body, { headers: sent });
    }
  }

  async close(): Promise<void> {
    await this.#connection?.close();
  }

  async #connected(): Promise<NatsConnection> {
    if (this.#connection === undefined || this.#connection.isClosed()) {
      const login = { user: LOGIN.user, pass: LOGIN.password };
      this.#connection = await connect({ servers: this.#servers, ...login, reconnect: false });
    }
    return this.#connection;
  }
}
