/** The kinds of broker the tests can have. */
export type BrokerKind = "rabbitmq" | "nats" | "kafka";

/** The address of a RabbitMQ server, and its administrator. */
export interface RabbitmqAddress {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
  /** With user and password, of the virtual host `/`. */
  readonly url: string;
}

/** The address of a NATS server. */
export interface NatsAddress {
  readonly host: string;
  readonly port: number;
  /** Without credentials. */
  readonly url: string;
}

/** The address of a Kafka broker. */
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
   * Evaluates Erlang on the server's own node, where all that `rabbitmqctl` does can be called.
   *
   * @param expressions one or several, the last one with its full stop
   * @throws Error with what the node says when one of them fails
   */
  evaluate(expressions: string): Promise<void>;
}

/**
 * One server that can be started again and again by a program of this machine.
 *
 * @typeParam A what a client needs to reach it
 */
export interface Launch<A> extends OwnServer {
  readonly address: A;
}
