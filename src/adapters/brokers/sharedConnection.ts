import { errorText } from "../../model/errors.ts";
import type { AdapterTools } from "../../ports/kinds.ts";
import { Backoff } from "../../time/wait.ts";

interface SharedConnectionOptions<C> {
  /** Its address without credentials, for the log. */
  readonly broker: string;
  /** @throws Error with the problem, without credentials; the signal's reason on abort */
  readonly connect: (signal: AbortSignal) => Promise<C>;
  /** Calls back with the reason when a connection has ended. */
  readonly onEnd: (connection: C, ended: (reason: string) => void) => void;
  readonly disconnect: (connection: C) => Promise<unknown>;
  readonly tools: AdapterTools;
}

/**
 * The one connection of a destination: opened when a publish needs it, and again on demand after its end. Callers share
 * one attempt to connect. After a failed attempt there is a pause with backoff in which callers get its fault at once:
 * a slot that waits for a broker that is away would hold up all other destinations.
 */
export class SharedConnection<C> {
  readonly #options: SharedConnectionOptions<C>;
  readonly #backoff: Backoff;
  readonly #closing = new AbortController();
  #connection: C | undefined;
  #connecting: Promise<C> | undefined;
  /** Why the last attempt failed. */
  #fault: unknown;
  #notBefore = Number.NEGATIVE_INFINITY;

  constructor(options: SharedConnectionOptions<C>) {
    this.#options = options;
    this.#backoff = new Backoff(options.tools.random);
  }

  get current(): C | undefined {
    return this.#connection;
  }

  get(): Promise<C> {
    if (this.#connection !== undefined) return Promise.resolve(this.#connection);
    const isPausing = this.#options.tools.clock.monotonic() < this.#notBefore;
    if (this.#connecting === undefined && isPausing) return Promise.reject(this.#fault);
    this.#connecting ??= this.#connect().finally(() => {
      this.#connecting = undefined;
    });
    return this.#connecting;
  }

  /** Ends the connection, or a running attempt. @param reason what callers of that get */
  async close(reason: Error): Promise<void> {
    this.#closing.abort(reason);
    await this.#connecting?.catch(() => {});
    if (this.#connection !== undefined) await this.#options.disconnect(this.#connection);
  }

  async #connect(): Promise<C> {
    const { broker, connect, onEnd, tools } = this.#options;
    const { clock, log } = tools;
    const { signal } = this.#closing;
    try {
      const connection = await connect(signal);
      this.#connection = connection;
      this.#backoff.reset();
      log.info({ broker }, "connected to the broker");
      onEnd(connection, (reason) => {
        this.#connection = undefined;
        if (!signal.aborted) log.warn({ broker, reason }, "lost the connection to the broker");
      });
      return connection;
    } catch (error) {
      this.#fault = error;
      this.#notBefore = clock.monotonic() + this.#backoff.next();
      const isFirst = this.#backoff.failures === 1 && !signal.aborted;
      if (isFirst) log.warn({ broker, reason: errorText(error) }, "cannot connect to the broker");
      throw error;
    }
  }
}
