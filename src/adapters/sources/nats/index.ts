import { errorText, StoppingError } from "../../../model/errors.ts";
import { REFUSED_RETRY_MS, type SourceTools } from "../../../ports/kinds.ts";
import type { Source } from "../../../ports/source.ts";
import { Backoff } from "../../../time/backoff.ts";
import { atMost, pause, untilAborted } from "../../../time/wait.ts";
import { NatsFault } from "../../brokers/nats/faults.ts";
import { NatsDialer, type NatsLink } from "../../brokers/nats/link.ts";
import { type Delivery, FetchBuffer, redeliverLost } from "./buffer.ts";
import { type BoundConsumer, bindConsumer } from "./consumer.ts";
import type { NatsSourceConfig } from "./schema.ts";
import { Session } from "./session.ts";

const CONNECT_TIMEOUT_MS = 5000;
/** Longest wait for the server at each step of a graceful stop. */
const STOP_STEP_MS = 2000;
const TAKE_AGAIN_MS = 1000;

/**
 * A NATS source (spec, "Subject-broker source"): reads a stream through a durable pull consumer, which replicas share.
 *
 * @throws Error when `servers` is invalid
 */
export function createNatsSource(options: NatsSourceConfig, tools: SourceTools): Source {
  return new NatsSource(options, tools);
}

/**
 * Two loops: one keeps a session with the server and fills the buffer, the other takes one batch after another from it.
 * The buffer survives a session: after a broken connection its messages are still taken first, in order, and
 * acknowledged over the next connection.
 */
class NatsSource implements Source {
  readonly name: string;
  readonly #options: NatsSourceConfig;
  readonly #tools: SourceTools;
  readonly #dialer: NatsDialer;
  readonly #buffer: FetchBuffer;
  readonly #backoff: Backoff;
  readonly #stopping = new AbortController();
  readonly #cut = new AbortController();
  /** Taken without a connection to acknowledge them. */
  #unacknowledged: readonly Delivery[] = [];
  #session: Session | undefined;
  /** Why it does not consume; undefined while it does. */
  #fault: string | undefined = "the source has not been started";
  #reading: Promise<void> | undefined;
  #taking: Promise<void> | undefined;
  #end: Promise<void> | undefined;

  constructor(options: NatsSourceConfig, tools: SourceTools) {
    this.name = `nats.${tools.name}`;
    this.#options = options;
    this.#tools = tools;
    this.#dialer = new NatsDialer(options, `svc source ${tools.name}`, CONNECT_TIMEOUT_MS, tools.random);
    this.#buffer = new FetchBuffer(options.batchSize);
    this.#backoff = new Backoff(tools.random);
  }

  async start(): Promise<void> {
    if (this.#reading !== undefined || this.#stopping.signal.aborted) return;
    this.#fault = `connecting to ${this.#dialer.servers}`;
    this.#reading = this.#read();
    this.#taking = this.#take();
  }

  async check(): Promise<void> {
    if (this.#stopping.signal.aborted) throw new Error("the source was stopped");
    if (this.#fault !== undefined) throw new Error(this.#fault);
  }

  async stop(cutoff: AbortSignal): Promise<void> {
    this.#end ??= this.#stop();
    const cut = () => this.#cut.abort(cutoff.reason);
    if (cutoff.aborted) cut();
    else cutoff.addEventListener("abort", cut, { once: true });
    await this.#end;
    cutoff.removeEventListener("abort", cut);
  }

  async #stop(): Promise<void> {
    this.#stopping.abort(new StoppingError());
    this.#buffer.close();
    // A batch taken meanwhile makes room, and must not trigger the next request.
    this.#session?.end();
    await this.#reading;
    const session = this.#session;
    const steps = async () => {
      await atMost(STOP_STEP_MS, session?.drain());
      await this.#taking;
      await atMost(STOP_STEP_MS, session?.giveBack());
    };
    if (!this.#cut.signal.aborted) await untilAborted(steps(), this.#cut.signal);
    await session?.close();
  }

  /** Keeps a session until the stop, and leaves the last one open. */
  async #read(): Promise<void> {
    const stopping = this.#stopping.signal;
    const { log } = this.#tools;
    const { stream, durable } = this.#options;
    for (;;) {
      const fault = await this.#serve(stopping);
      if (stopping.aborted) return;
      const waitMs = this.#backoff.next();
      const line = { stream, durable, reason: fault, retryMs: waitMs };
      if (this.#fault === fault) log.debug(line, "the NATS source still does not consume");
      else log.warn(line, "the NATS source does not consume");
      this.#fault = fault;
      await pause(waitMs, stopping);
    }
  }

  /** Runs one session, from its connection to its end. Returns why it ended, or anything when the source stops. */
  async #serve(stopping: AbortSignal): Promise<string> {
    let link: NatsLink | undefined;
    try {
      link = await this.#dialer.dial(stopping);
      const consumer = await untilAborted(bindConsumer(link, this.#options), stopping);
      if (consumer === undefined) throw stopping.reason;
      const held = [...this.#unacknowledged, ...this.#buffer.all];
      const recalled = await untilAborted(redeliverLost(link, this.#options, consumer.info, held), stopping);
      if (recalled === undefined) throw stopping.reason;
      this.#report(consumer, recalled, link.server);
      const session = new Session(link, this.#options, consumer, this.#buffer, () => this.#backoff.reset());
      this.#session = session;
      this.#fault = undefined;
      this.#acknowledge([]);
      const reason = await untilAborted(session.failed, stopping);
      if (reason === undefined) return "";
      await session.close();
      return reason;
    } catch (error) {
      await link?.close();
      return error instanceof NatsFault ? error.message : errorText(error);
    }
  }

  async #take(): Promise<void> {
    for (;;) {
      const batch = await this.#buffer.next();
      if (batch.length === 0) return;
      const refused = await this.#taken(batch);
      if (refused === undefined) {
        this.#buffer.putBack();
        return;
      }
      this.#buffer.done();
      if (refused.length > 0) this.#session?.postpone(refused, this.#tools.refusedRetryMs ?? REFUSED_RETRY_MS);
      this.#acknowledge(batch.filter((delivery) => !refused.includes(delivery)));
      this.#session?.more();
    }
  }

  /**
   * @returns the messages of the batch that the inbox table refused; undefined when the source stopped before all of it
   * was taken: then none may be acknowledged
   */
  async #taken(batch: readonly Delivery[]): Promise<readonly Delivery[] | undefined> {
    const { intake, log } = this.#tools;
    const stopping = this.#stopping.signal;
    const messages = batch.map(({ message }) => message);
    for (;;) {
      try {
        const refused = await intake.take(messages, stopping);
        if (this.#cut.signal.aborted) return undefined;
        return refused.length === 0 ? [] : batch.filter(({ message }) => refused.includes(message));
      } catch (error) {
        if (stopping.aborted) return undefined;
        log.error({ reason: errorText(error) }, "taking a batch failed, retrying");
        await pause(TAKE_AGAIN_MS, stopping);
      }
    }
  }

  /** Acknowledges these messages and those that had no connection before. */
  #acknowledge(taken: readonly Delivery[]): void {
    const all = [...this.#unacknowledged, ...taken];
    this.#unacknowledged = this.#session?.acknowledge(all) ?? all;
  }

  #report({ created, differences }: BoundConsumer, recalled: number, server: string): void {
    const { log } = this.#tools;
    const { stream, durable } = this.#options;
    const place = { stream, durable };
    if (created) log.info(place, "created the durable consumer; it reads the stream from its first message");
    const text = "the durable consumer has other settings than the service would give it";
    if (differences.length > 0) log.warn({ ...place, differences: differences.join("; ") }, text);
    log.info({ ...place, server, recalled }, "the NATS source consumes");
  }
}
