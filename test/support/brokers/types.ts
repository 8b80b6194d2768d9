/** The kinds of broker the tests can have. */
export type BrokerKind = "rabbitmq" | "nats" | "kafka";

/** Where a RabbitMQ server listens, and its administrator. */
export interface RabbitmqAddress {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
  /** With user and password, of the virtual host `/`. */
  readonly url: string;
}

/** Where a NATS server listens. */
export interface NatsAddress {
  readonly host: string;
  readonly port: number;
  /** Without credentials. */
  readonly url: string;
}

/** Where a Kafka broker listens. */
export interface KafkaAddress {
  readonly host: string;
  readonly port: number;
  readonly bootstrapServers: string;
}

/** A server of the test's own. Disposing ends it and removes its data. */
export interface OwnServer extends AsyncDisposable {
  /** Ends it in good order; no more than refused connections is left when this settles. */
  stop(): Promise<void>;
  /** Ends it as a crash would, between any two instructions. */
  kill(): Promise<void>;
  /** Starts it again at the same place with the same data; settles when it serves. */
  start(): Promise<void>;
}

/** A RabbitMQ server of the test's own. */
export interface OwnRabbitmq extends OwnServer {
  /**
   * Runs `rabbitmqctl` on the server's own node.
   *
   * @param args such as `set_permissions`, user and patterns
   * @returns what it wrote to its standard output
   * @throws Error with what it wrote when it fails
   */
  control(...args: string[]): Promise<string>;
}

/**
 * One server that can be started again and again: by a program of this machine, or in a container.
 *
 * @typeParam A what a client needs to reach it
 */
export interface Launch<A> extends OwnServer {
  readonly address: A;
}
