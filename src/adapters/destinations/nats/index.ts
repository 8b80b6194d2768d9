import { errorText } from "../../../model/errors.ts";
import type { Destination } from "../../../ports/destination.ts";
import type { AdapterTools } from "../../../ports/kinds.ts";
import { Backoff } from "../../../time/backoff.ts";
import { NatsFault } from "../../brokers/nats/faults.ts";
import { NatsDialer, type NatsLink } from "../../brokers/nats/link.ts";
import { InFlight } from "../../brokers/pendingPublish.ts";
import { natsError, noConnection } from "./errors.ts";
import { configuredInternalToken, PendingMessage } from "./message.ts";
import type { NatsDestinationConfig } from "./schema.ts";
import { CoreSession, JetStreamSession, type Session } from "./session.ts";

/** A server that takes longer than this to let a client in is passed over for the next one. */
const MAX_CONNECT_MS = 5000;

/**
 * A NATS destination (spec, "Subject-broker destination"). All publishes share one connection, and many may be under way on it.
 *
 * @throws Error when `servers` cannot be read
 */
export function createNatsDestination(config: NatsDestinationConfig, tools: AdapterTools): Destination {
  const { jetStream, timeoutMs } = config;
  const dialer = new NatsDialer(config, "svc destination", Math.min(timeoutMs, MAX_CONNECT_MS), tools.random);
  const shared = new SharedSession(dialer, tools, (link) =>
    jetStream ? new JetStreamSession(link) : new CoreSession(link),
  );
  const internalToken = configuredInternalToken(config.subject, config.subjectFrom);
  const inFlight = new InFlight();
  let closed: Promise<void> | undefined;

  const close = async (): Promise<void> => {
    inFlight.failAll(natsError("closed", "the destination was closed"));
    await shared.close();
  };

  return {
    async publish(message, signal) {
      signal.throwIfAborted();
      if (closed !== undefined) throw natsError("closed", "the destination is closed");
      const pending = new PendingMessage(message, { inFlight, signal, timeoutMs }, internalToken);
      inFlight.add(pending);
      const session = shared.current;
      if (session !== undefined) {
        session.send(pending);
      } else {
        shared.get().then(
          (opened) => {
            // A publish whose time is over while it waited must not be sent any more.
            if (!pending.settled) opened.send(pending);
          },
          (error) => pending.fail(noConnection(error)),
        );
      }
      return pending.outcome;
    },
    close() {
      closed ??= close();
      return closed;
    },
  };
}

/** The one connection of a destination: made when a publish needs it, and again when one needs it after it broke. */
class SharedSession {
  readonly #dialer: NatsDialer;
  readonly #tools: AdapterTools;
  readonly #open: (link: NatsLink) => Session;
  readonly #backoff: Backoff;
  readonly #closing = new AbortController();
  #session: Session | undefined;
  #attempt: Promise<Session> | undefined;
  #lastFault: NatsFault | undefined;
  #nextTryAt = 0;

  /** @param open makes the session on a new connection */
  constructor(dialer: NatsDialer, tools: AdapterTools, open: (link: NatsLink) => Session) {
    this.#dialer = dialer;
    this.#tools = tools;
    this.#open = open;
    this.#backoff = new Backoff(tools.random);
  }

  /** The session, when there is a connection now. */
  get current(): Session | undefined {
    if (this.#session?.link.lost !== undefined) this.#session = undefined;
    return this.#session;
  }

  /**
   * The session; callers share one attempt to connect. Between two attempts that failed there is a pause, in which this fails at once: whoever waited
   * would keep others from being served.
   *
   * @throws NatsFault when no server takes the connection
   */
  get(): Promise<Session> {
    const current = this.current;
    if (current !== undefined) return Promise.resolve(current);
    if (this.#attempt !== undefined) return this.#attempt;
    const wait = Math.ceil(this.#nextTryAt - this.#tools.clock.monotonic());
    if (this.#lastFault !== undefined && wait > 0) {
      const { code, message } = this.#lastFault;
      return Promise.reject(new NatsFault(code, `${message}; the next attempt to connect follows in ${wait} ms`));
    }
    this.#attempt = this.#connect().finally(() => {
      this.#attempt = undefined;
    });
    return this.#attempt;
  }

  /** Ends the connection, and an attempt that is under way. */
  async close(): Promise<void> {
    this.#closing.abort(new NatsFault("other", "the destination was closed"));
    await this.#attempt?.catch(() => {});
    await this.#session?.link.close("the destination was closed");
  }

  async #connect(): Promise<Session> {
    const { log, clock } = this.#tools;
    const { servers } = this.#dialer;
    try {
      const session = this.#open(await this.#dialer.dial(this.#closing.signal));
      this.#session = session;
      void session.link.ended.then((reason) => {
        if (this.#closing.signal.aborted) return;
        log.warn({ servers, reason }, "lost the connection to the NATS server");
        this.#lastFault = new NatsFault("connection_lost", reason);
      });
      if (this.#lastFault !== undefined)
        log.info({ server: session.link.server }, "connected to the NATS server again");
      this.#lastFault = undefined;
      this.#backoff.reset();
      return session;
    } catch (error) {
      if (this.#closing.signal.aborted) throw error;
      const fault = error instanceof NatsFault ? error : new NatsFault("other", errorText(error));
      if (this.#lastFault?.message !== fault.message) {
        log.warn({ servers, reason: fault.message }, "cannot connect to the NATS server");
      }
      this.#lastFault = fault;
      this.#nextTryAt = clock.monotonic() + this.#backoff.next();
      throw fault;
    }
  }
}
