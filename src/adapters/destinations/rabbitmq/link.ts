import type { Log } from "../../../ports/runtime.ts";
import { Backoff } from "../../../time/backoff.ts";
import type { Clock } from "../../../time/clock.ts";
import { type AmqpConnection, openConnection } from "../../brokers/rabbitmq/connection.ts";
import { faultOf, RabbitmqFault } from "../../brokers/rabbitmq/fault.ts";
import type { AmqpTarget } from "../../brokers/rabbitmq/uri.ts";
import type { BrokerTools } from "../../brokers/tools.ts";

/**
 * The one connection of a destination: made when it is first asked for, and made again when it is asked for after a fault.
 *
 * Whoever asks while a try runs waits for it. After a failed try there is a wait with backoff, and whoever asks meanwhile gets the fault
 * of that try at once: a poller slot that waits for a broker that is away would hold up the messages to all other destinations.
 * A connection that was of use and is lost may be made again at once.
 */
export class Link {
  readonly #target: AmqpTarget;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #backoff: Backoff;
  readonly #onUnblocked: () => void;
  readonly #closing = new AbortController();
  #connection: AmqpConnection | null = null;
  #connecting: Promise<AmqpConnection> | null = null;
  /** What ended the last try or connection. */
  #fault: RabbitmqFault | null = null;
  /** Whether the broker has confirmed a message on the present connection, or on the last one. */
  #wasOfUse = false;
  #notBefore = 0;

  /** @param onUnblocked called when the broker takes messages again */
  constructor(target: AmqpTarget, tools: BrokerTools, onUnblocked: () => void) {
    this.#target = target;
    this.#clock = tools.clock;
    this.#log = tools.log;
    this.#backoff = new Backoff(tools.random);
    this.#onUnblocked = onUnblocked;
  }

  /**
   * The connection.
   *
   * @throws RabbitmqFault when there is none
   */
  async connection(): Promise<AmqpConnection> {
    if (this.#connection !== null) return this.#connection;
    if (this.#connecting !== null) return this.#connecting;
    const wait = Math.ceil(this.#notBefore - this.#clock.monotonic());
    if (this.#fault !== null && wait > 0)
      throw new RabbitmqFault(this.#fault.code, `${this.#fault.message}; the next try is due in ${wait} ms`);
    this.#connecting = this.#connect();
    return this.#connecting;
  }

  /** The connection was of use: the next fault starts with the shortest wait. */
  proven(): void {
    if (this.#wasOfUse) return;
    this.#wasOfUse = true;
    this.#backoff.reset();
  }

  async close(): Promise<void> {
    this.#closing.abort(new RabbitmqFault("closed", `the connection to ${this.#target.name} was closed`));
    await this.#connecting?.catch(() => null);
    await this.#connection?.close();
  }

  async #connect(): Promise<AmqpConnection> {
    const { name } = this.#target;
    try {
      const connection = await openConnection(this.#target, this.#closing.signal);
      this.#connection = connection;
      this.#wasOfUse = false;
      connection.ended.addEventListener("abort", () => this.#lost(connection), { once: true });
      connection.onBlockedChange = () => this.#blockedChanged(connection);
      this.#log.info({ broker: name }, "connected to RabbitMQ");
      return connection;
    } catch (error) {
      this.#fault = faultOf(`cannot connect to ${name}`, error);
      this.#notBefore = this.#clock.monotonic() + this.#backoff.next();
      throw this.#fault;
    } finally {
      this.#connecting = null;
    }
  }

  #blockedChanged(connection: AmqpConnection): void {
    const fields = { broker: this.#target.name, reason: connection.blocked };
    if (connection.blocked !== null) this.#log.warn(fields, "RabbitMQ blocks publishers");
    else {
      this.#log.info(fields, "RabbitMQ takes messages again");
      this.#onUnblocked();
    }
  }

  #lost(connection: AmqpConnection): void {
    this.#connection = null;
    if (this.#closing.signal.aborted) return;
    const fault = faultOf("the connection ended", connection.ended.reason);
    this.#log.warn({ broker: this.#target.name, reason: fault.message }, "lost the connection to RabbitMQ");
    this.#fault = fault;
    // A broker that was restarted is tried again at once; one that takes a connection and drops it has to wait.
    this.#notBefore = this.#clock.monotonic() + (this.#wasOfUse ? 0 : this.#backoff.next());
  }
}
