import { type ContainerOptions, launchContainer, runInContainer } from "./docker.ts";
import {
  clusterId,
  JAVA_OPTIONS,
  type KafkaServerOptions,
  kafkaAddress,
  kafkaAnswers,
  kafkaConfiguration,
  scramUsers,
} from "./kafka.ts";
import { type NatsServerOptions, natsAddress, natsAnswers, natsConfiguration } from "./nats.ts";
import { lastingPorts } from "./ports.ts";
import { type RabbitmqLaunch, rabbitmqAddress, rabbitmqAnswers, rabbitmqConfiguration } from "./rabbitmq.ts";
import type { KafkaAddress, Launch, NatsAddress } from "./types.ts";

/** The servers in containers. Each has the configuration of the one that runs as a program, and listens for its container. */

const EVERYWHERE = "0.0.0.0";

export async function rabbitmqContainer(): Promise<RabbitmqLaunch> {
  const server = await launch(rabbitmqAddress, (address) => ({
    kind: "rabbitmq",
    image: "rabbitmq:3.13-alpine",
    port: address.port,
    files: { "/etc/rabbitmq/conf.d/90-svc.conf": rabbitmqConfiguration(EVERYWHERE, address.port) },
    answers: () => rabbitmqAnswers(address),
  }));
  const evaluate = async (expressions: string) => {
    const { code, output } = await runInContainer(server.address.port, ['rabbitmqctl eval "$0"', expressions]);
    if (code !== 0) throw new Error(`rabbitmqctl ended with ${code}:\n${output}`);
  };
  return { ...server, evaluate };
}

export function natsContainer(options: NatsServerOptions): Promise<Launch<NatsAddress>> {
  return launch(natsAddress, ({ port }) => ({
    kind: "nats",
    image: "nats:2.12-alpine",
    port,
    files: { "/svc/nats.conf": natsConfiguration({ host: EVERYWHERE, port, storeFolder: "/data", options }) },
    command: ["-c", "/svc/nats.conf"],
    answers: () => natsAnswers(port, options),
  }));
}

export function kafkaContainer(options: KafkaServerOptions): Promise<Launch<KafkaAddress>> {
  const { sasl = false } = options;
  const users = scramUsers(sasl).map((word) => `'${word}'`);
  const format = `/opt/kafka/bin/kafka-storage.sh format -t ${clusterId()} -c /svc/server.properties ${users.join(" ")}`;
  return launch(kafkaAddress, ({ port }) => ({
    kind: "kafka",
    image: "apache/kafka:4.1.1",
    port,
    files: {
      "/svc/server.properties": kafkaConfiguration(
        { port, controllerPort: port + 1, internalPort: port + 2 },
        "/tmp/svc-data",
        sasl,
        EVERYWHERE,
      ),
    },
    environment: { KAFKA_HEAP_OPTS: JAVA_OPTIONS.join(" ") },
    entrypoint: ["/bin/sh", "-c"],
    command: [`[ -d /tmp/svc-data ] || ${format}; exec /opt/kafka/bin/kafka-server-start.sh /svc/server.properties`],
    answers: () => kafkaAnswers(port, sasl),
  }));
}

async function launch<A extends { readonly port: number }>(
  addressOf: (port: number) => A,
  optionsFor: (address: A) => ContainerOptions,
): Promise<Launch<A>> {
  const [port = 0] = await lastingPorts(1);
  const address = addressOf(port);
  return { address, ...(await launchContainer(optionsFor(address))) };
}
