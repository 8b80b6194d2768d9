import { errorText } from "../../../model/errors.ts";
import type { Destination } from "../../../ports/destination.ts";
import type { AdapterTools } from "../../../ports/kinds.ts";
import { Backoff } from "../../../time/backoff.ts";
import { brokerDestination } from "../../brokers/destination.ts";
import { NatsFault } from "../../brokers/nats/faults.ts";
import { NatsDialer, type NatsLink } from "../../brokers/nats/link.ts";
import { noConnection } from "./errors.ts";
import { configuredInternalToken, PendingMessage } from "./message.ts";
import type { NatsDestinationConfig } from "./schema.ts";
import { CoreSession, JetStreamSession, type Session } from "./session.ts";

/** Timeout of connecting to one server; then the next one is tried. */
const MAX_CONNECT_MS = 5000;

/**
 * A NATS destination (spec, "Subject-broker destination"). All publishes share one connection, many in flight at a
 * time.
 *
 * @throws Error when `servers` is invalid
 */
export function createNatsDestination(config: NatsDestinationConfig, tools: AdapterTools): Destination {
  const { jetStream, timeoutMs } = config;
  const dialer = new NatsDialer(config, "svc destination", Math.min(timeoutMs, MAX_CONNECT_MS), tools.random);
  const shared = new SharedSession(dialer, tools, (link) =>
    jetStream ? new JetStreamSession(link) : new CoreSession(link),
  );
  const internalToken = configuredInternalToken(config.subject, config.subjectFrom);
  return brokerDestination({
    timeoutMs,
    prepare: (message, bounds) => new PendingMessage(message, bounds, internalToken),
    send(pending) {
      const session = shared.current;
      if (session !== undefined) {
        session.send(pending);
        return;
      }
      shared.get().then(
        (opened) => {
          // A publish that timed out while waiting must not be sent.
          if (!pending.settled) opened.send(pending);
        },
        (error) => pending.fail(noConnection(error)),
      );
    },
    closedText: (verb) => `the destination ${verb} closed`,
    close: () => shared.close(),
  });
}

/** The one connection of a destination: opened when a publish needs it, and reopened on demand after it broke. */
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

  /** The session, if connected. */
  get current(): Session | undefined {
    if (this.#session?.link.lost !== undefined) this.#session = undefined;
    return this.#session;
  }

  /**
   * The session; callers share one attempt to connect. After a failed attempt there is a pause in which this fails at
   * once: waiting would hold up other destinations.
   *
   * @throws NatsFault when no server accepts the connection
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

  /** Ends the connection, or a running attempt. */
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
