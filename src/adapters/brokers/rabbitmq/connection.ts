import { type Channel, type ChannelModel, type ConfirmChannel, connect, type SocketOptions } from "amqplib";
import { atMost } from "../../../time/wait.ts";
import { faultOf, RabbitmqFault, type RabbitmqFaultCode } from "./fault.ts";
import { readContentHeaders } from "./properties.ts";
import type { AmqpTarget } from "./uri.ts";

export const CLOSE_TIMEOUT_MS = 2000;
/** Time for the last frames of an ended connection to leave, in ms. */
const LINGER_MS = 500;
/** Frames that each of a channel's two buffers takes before publishers have to wait. */
const CHANNEL_BUFFER_FRAMES = 64;

const ADVICE: Readonly<Partial<Record<RabbitmqFaultCode, string>>> = {
  connection_refused: "check the host and the port, and that RabbitMQ runs there",
  dns: "check the name of the host",
  tls: "check that the port expects amqps, and that the certificate names the host and is trusted (NODE_EXTRA_CA_CERTS adds an authority)",
};

/**
 * Connects and logs in.
 *
 * @param signal cancels the attempt at any point
 * @throws RabbitmqFault with what failed and what to do; the signal's reason on abort
 */
export async function openConnection(target: AmqpTarget, signal: AbortSignal): Promise<AmqpConnection> {
  signal.throwIfAborted();
  const socket = new AbortController();
  const timer = setTimeout(() => socket.abort(), target.connectTimeoutMs);
  const giveUp = () => socket.abort();
  signal.addEventListener("abort", giveUp, { once: true });
  // The library cannot end a connection that hangs, so the socket itself listens to the signal.
  const options: SocketOptions & { readonly signal: AbortSignal } = {
    signal: socket.signal,
    noDelay: true,
    keepAlive: true,
    clientProperties: { connection_name: "svc" },
  };
  try {
    const model = await connect(target.options, options);
    const connection = new AmqpConnection(target, model, socket);
    if (!socket.signal.aborted) return connection;
    throw timedOut(target);
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    throw socket.signal.aborted ? timedOut(target) : connectFault(target, error);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", giveUp);
  }
}

/** One open connection. It serves until `ended` aborts; it never reopens. */
export class AmqpConnection {
  readonly target: AmqpTarget;
  /** Largest frame of the broker, in bytes. */
  readonly frameMax: number;
  /**
   * Largest body of the broker, in bytes. The broker reports it only with a refusal; the destination that got it stores
   * it here.
   */
  maxBodyBytes = Number.POSITIVE_INFINITY;
  onBlockedChange: () => void = () => {};
  readonly #model: ChannelModel;
  readonly #socket: AbortController;
  readonly #ended = new AbortController();
  #blocked: string | null = null;

  constructor(target: AmqpTarget, model: ChannelModel, socket: AbortController) {
    this.target = target;
    this.#model = model;
    this.#socket = socket;
    // The library does not expose the negotiated value.
    const { frameMax } = model.connection as { readonly frameMax?: unknown };
    readContentHeaders(model.connection);
    this.frameMax = typeof frameMax === "number" ? frameMax : (target.options.frameMax ?? 0);
    model.on("error", (error) => this.#end(error));
    model.on("close", (error) => this.#end(error));
    model.on("blocked", (reason) => this.#setBlocked(reason || "no reason given"));
    model.on("unblocked", () => this.#setBlocked(null));
  }

  /** Why the broker blocks publishers; null while it does not. */
  get blocked(): string | null {
    return this.#blocked;
  }

  /** Aborts with the `RabbitmqFault` that ended the connection. */
  get ended(): AbortSignal {
    return this.#ended.signal;
  }

  createChannel(): Promise<Channel> {
    return this.#model.createChannel();
  }

  createConfirmChannel(): Promise<ConfirmChannel> {
    return this.#model.createConfirmChannel({ highWaterMark: CHANNEL_BUFFER_FRAMES });
  }

  /** Closes the connection, with a short timeout for the broker's answer. Close channels with unsent frames before. */
  async close(): Promise<void> {
    if (this.ended.aborted) {
      this.#socket.abort();
      return;
    }
    // It rejects when the connection breaks meanwhile, which is just as good.
    await atMost(CLOSE_TIMEOUT_MS, this.#model.close());
    this.destroy();
  }

  /** Ends the connection without a close handshake. */
  destroy(): void {
    this.#end(new RabbitmqFault("closed", `the connection to ${this.target.name} was closed`));
    this.#socket.abort();
  }

  #setBlocked(reason: string | null): void {
    this.#blocked = reason;
    this.onBlockedChange();
  }

  #end(error: unknown): void {
    if (this.ended.aborted) return;
    const cause = error ?? new RabbitmqFault("closed", `the connection to ${this.target.name} was closed`);
    this.#ended.abort(endFault(this.target, cause));
    // The library only half-closes a socket: without its peer it would stay open for minutes.
    setTimeout(() => this.#socket.abort(), LINGER_MS).unref();
  }
}

function endFault(target: AmqpTarget, error: unknown): RabbitmqFault {
  const silent = error instanceof Error && error.message === "Heartbeat timeout";
  if (silent)
    return new RabbitmqFault(
      "connection_lost",
      `the connection to ${target.name} was given up: nothing came from the broker for two heartbeats`,
    );
  return faultOf(`the connection to ${target.name} ended`, error);
}

function timedOut(target: AmqpTarget): RabbitmqFault {
  return new RabbitmqFault(
    "timeout",
    `cannot connect to ${target.name}: no complete handshake within ${target.connectTimeoutMs} ms; check that RabbitMQ listens there and is ` +
      `not overloaded, and that amqp or amqps is what the port expects`,
  );
}

function connectFault(target: AmqpTarget, error: unknown): RabbitmqFault {
  const { name, user, vhost } = target;
  const text = error instanceof Error ? error.message : String(error);
  if (/ACCESS.REFUSED/.test(text)) {
    const local = user === "guest" ? "; the user guest may connect from the broker's own host only" : "";
    return new RabbitmqFault(
      "credentials",
      `cannot connect to ${name}: RabbitMQ refused the user ${JSON.stringify(user)} or the password${local}`,
    );
  }
  // The library reports that the broker closed the connection at this step, but drops the broker's reason.
  if (/Expected ConnectionOpenOk; got <ConnectionClose/.test(text))
    return new RabbitmqFault(
      "vhost",
      `cannot connect to ${name}: RabbitMQ refused the virtual host ${JSON.stringify(vhost)}; check that it exists, that the user ` +
        `${JSON.stringify(user)} has permissions in it, and that no connection limit is reached`,
    );
  if (/Socket closed abruptly/.test(text))
    return new RabbitmqFault(
      "connection_lost",
      `cannot connect to ${name}: the other side closed the connection during the handshake; check that RabbitMQ listens there and whether ` +
        `the port expects amqp or amqps`,
    );
  const fault = faultOf(`cannot connect to ${name}`, error);
  const advice = ADVICE[fault.code];
  return advice === undefined ? fault : new RabbitmqFault(fault.code, `${fault.message}; ${advice}`);
}
