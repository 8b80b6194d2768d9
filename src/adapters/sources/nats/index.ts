import { createInbox, type Msg, type Subscription } from "nats";
import { errorText, StoppingError } from "../../../model/errors.ts";
import { REFUSED_RETRY_MS, type SourceTools } from "../../../ports/kinds.ts";
import type { Source } from "../../../ports/source.ts";
import { atMost, Backoff, pause, untilAborted } from "../../../time/wait.ts";
import { NatsFault } from "../../brokers/nats/faults.ts";
import { NatsDialer, type NatsLink, statusOf } from "../../brokers/nats/link.ts";
import {
  type BoundConsumer,
  bindConsumer,
  brokerMessageOf,
  FetchBuffer,
  type FetchedMessage,
  redeliverLost,
} from "./consumer.ts";
import type { NatsSourceConfig } from "./kind.ts";

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
  readonly #cutoff = new AbortController();
  /** Taken without a connection to acknowledge them. */
  #unacknowledged: readonly FetchedMessage[] = [];
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
    const cut = () => this.#cutoff.abort(cutoff.reason);
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
    if (!this.#cutoff.signal.aborted) await untilAborted(steps(), this.#cutoff.signal);
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
      const refused = await this.#takeBatch(batch);
      if (refused === undefined) {
        this.#buffer.putBack();
        return;
      }
      this.#buffer.done();
      if (refused.length > 0) this.#session?.postpone(refused, this.#tools.refusedRetryMs ?? REFUSED_RETRY_MS);
      this.#acknowledge(batch.filter((fetched) => !refused.includes(fetched)));
      this.#session?.more();
    }
  }

  /**
   * @returns the refused messages of the batch; undefined if the source stopped before all were taken: acknowledge none
   */
  async #takeBatch(batch: readonly FetchedMessage[]): Promise<readonly FetchedMessage[] | undefined> {
    const { intake, log } = this.#tools;
    const stopping = this.#stopping.signal;
    const messages = batch.map(({ message }) => message);
    for (;;) {
      try {
        const refused = await intake.take(messages, stopping);
        if (this.#cutoff.signal.aborted) return undefined;
        return refused.length === 0 ? [] : batch.filter(({ message }) => refused.includes(message));
      } catch (error) {
        if (stopping.aborted) return undefined;
        log.error({ reason: errorText(error) }, "taking a batch failed, retrying");
        await pause(TAKE_AGAIN_MS, stopping);
      }
    }
  }

  /** Acknowledges these messages, and messages that waited for a connection. */
  #acknowledge(taken: readonly FetchedMessage[]): void {
    const all = [...this.#unacknowledged, ...taken];
    this.#unacknowledged = this.#session?.acknowledge(all) ?? all;
  }

  #report({ created }: BoundConsumer, recalled: number, server: string): void {
    const { log } = this.#tools;
    const { stream, durable } = this.#options;
    if (created)
      log.info({ stream, durable }, "created the durable consumer; it reads the stream from its first message");
    log.info({ stream, durable, server, recalled }, "the NATS source consumes");
  }
}

/** Answers to a delivery (NATS ADR-15). */
const ACKNOWLEDGED = "+ACK";
const NOT_TAKEN = "-NAK";
const IN_PROGRESS = "+WPI";

/** Longest time that the server keeps a request open. */
const MAX_EXPIRES_MS = 30_000;
const HEARTBEAT_MS = 10_000;
/** The server may be silent for this many heartbeats. */
const MAX_SILENT_HEARTBEATS = 2.5;
/** A delivery is renewed three times per acknowledgement wait, so that a late renewal does no harm. */
const RENEWALS_PER_WAIT = 3;
const MIN_RENEWAL_MS = 10;
/** Shorter than a stop waits for messages to be given back. */
const FORGET_TIMEOUT_MS = 1000;

/** Status messages of the server (NATS ADR-37). */
const HEARTBEAT = 100;
const NO_MESSAGES = 404;
const REQUEST_EXPIRED = 408;
const NO_RESPONDERS = 503;

/**
 * Reads from the bound consumer into the buffer over one connection, and acknowledges. It requests messages, one
 * request at a time. A request stays open until its batch is full or it expires, and the server sends each message at
 * once: an idle source costs one heartbeat every ten seconds.
 */
class Session {
  /** Resolves with the reason when the session can no longer read. */
  readonly failed: Promise<string>;
  readonly #link: NatsLink;
  readonly #config: NatsSourceConfig;
  readonly #buffer: FetchBuffer;
  readonly #onServed: () => void;
  readonly #batch: number;
  readonly #inbox = createInbox();
  readonly #subscription: Subscription;
  readonly #subject: string;
  readonly #request: string;
  readonly #heartbeatMs: number;
  readonly #watch: NodeJS.Timeout;
  readonly #renewal: NodeJS.Timeout;
  #fail: (reason: string) => void = () => {};
  /** Messages requested that have not arrived. */
  #outstanding = 0;
  #heardAt = performance.now();
  #ended = false;

  /** @param onServed called on each sign that the server works */
  constructor(
    link: NatsLink,
    config: NatsSourceConfig,
    { maxBatch, maxExpiresMs, ackWaitMs }: BoundConsumer,
    buffer: FetchBuffer,
    onServed: () => void,
  ) {
    const expiresMs = Math.min(MAX_EXPIRES_MS, maxExpiresMs);
    this.#link = link;
    this.#config = config;
    this.#buffer = buffer;
    this.#onServed = onServed;
    this.#batch = maxBatch;
    this.#heartbeatMs = Math.min(HEARTBEAT_MS, Math.floor(expiresMs / 2));
    this.#subject = `$JS.API.CONSUMER.MSG.NEXT.${config.stream}.${config.durable}`;
    this.#request = JSON.stringify({
      batch: maxBatch,
      expires: expiresMs * 1_000_000,
      idle_heartbeat: this.#heartbeatMs * 1_000_000,
    });
    const failed = new Promise<string>((resolve) => {
      this.#fail = resolve;
    });
    this.failed = Promise.race([failed, link.ended]);
    this.#subscription = link.connection.subscribe(this.#inbox, {
      callback: (error, message) => {
        if (error === null) this.#received(message);
        else this.#fail(`the user may not receive messages: permit subscriptions to _INBOX.> (${errorText(error)})`);
      },
    });
    link.onViolation(({ operation, subject }) => {
      if (operation === "publish") this.#fail(`the user may not publish to ${subject}: grant it in the permissions`);
    });
    this.#watch = setInterval(() => this.#listen(), this.#heartbeatMs);
    const renewalMs = Math.max(MIN_RENEWAL_MS, Math.floor(ackWaitMs / RENEWALS_PER_WAIT));
    this.#renewal = setInterval(() => this.#answer(buffer.all, IN_PROGRESS), renewalMs);
    this.more();
  }

  /** Requests the next batch once the last one has arrived and there is room. Call it when there is new room. */
  more(): void {
    if (this.#ended || this.#outstanding > 0 || !this.#buffer.hasRoom) return;
    try {
      this.#link.connection.publish(this.#subject, this.#request, { reply: this.#inbox });
      this.#outstanding = this.#batch;
      this.#heardAt = performance.now();
    } catch (error) {
      this.#fail(this.#link.endReason ?? `messages could not be requested: ${errorText(error)}`);
    }
  }

  /** @returns the messages that could not be acknowledged because the connection has ended */
  acknowledge(messages: readonly FetchedMessage[]): readonly FetchedMessage[] {
    return this.#answer(messages, ACKNOWLEDGED);
  }

  /** Makes the server redeliver messages after a delay; after the end of a connection it does so anyway. */
  postpone(messages: readonly FetchedMessage[], delayMs: number): void {
    this.#answer(messages, `${NOT_TAKEN} ${JSON.stringify({ delay: delayMs * 1_000_000 })}`);
  }

  /** Stops requesting at once. Messages already requested still arrive. */
  end(): void {
    this.#ended = true;
    clearInterval(this.#watch);
  }

  /** Stops reading; resolves when all messages in flight have arrived, or never if the server hangs. */
  async drain(): Promise<void> {
    this.end();
    await Promise.race([this.#subscription.drain(), this.#link.ended]);
  }

  /** Gives waiting messages back, for another replica to get at once; resolves when the server has every answer. */
  async giveBack(): Promise<void> {
    const waiting = this.#buffer.release();
    if (waiting.length > 0) await this.#forgetRequest();
    this.#answer(waiting, NOT_TAKEN);
    await this.#link.flush();
  }

  async close(): Promise<void> {
    clearInterval(this.#renewal);
    this.end();
    await this.#link.close();
  }

  /**
   * Makes the server forget a request that may still be open: it would route the first message given back to that
   * request, find no listener, and queue the message after the others; NATS 2.9 then also delivers the last one twice.
   * A consumer info request makes the server remove such requests.
   */
  async #forgetRequest(): Promise<void> {
    const { stream, durable } = this.#config;
    const manager = await this.#link.connection.jetstreamManager({ checkAPI: false, timeout: FORGET_TIMEOUT_MS });
    // Without an answer the messages are given back anyway, perhaps out of order.
    await manager.consumers.info(stream, durable).catch(() => {});
  }

  #answer(messages: readonly FetchedMessage[], answer: string): readonly FetchedMessage[] {
    return messages.filter(({ acknowledgeTo }) => {
      try {
        this.#link.connection.publish(acknowledgeTo, answer);
        return false;
      } catch {
        return true;
      }
    });
  }

  #received(message: Msg): void {
    this.#heardAt = performance.now();
    if (message.subject === this.#inbox) {
      this.#status(statusOf(message));
      return;
    }
    this.#outstanding = Math.max(0, this.#outstanding - 1);
    this.#onServed();
    this.#buffer.add({
      acknowledgeTo: message.reply ?? "",
      message: brokerMessageOf(message, this.#config.idempotencyFrom),
    });
    this.more();
  }

  #status({ code, description }: { readonly code: number; readonly description: string }): void {
    switch (code) {
      case HEARTBEAT:
        this.#onServed();
        return;
      case NO_MESSAGES:
      case REQUEST_EXPIRED:
        this.#onServed();
        this.#outstanding = 0;
        this.more();
        return;
      case NO_RESPONDERS:
        this.#fail("the consumer, the stream or JetStream is gone");
        return;
      default:
        this.#fail(`the server ended the request for messages: ${description} (status ${code})`);
    }
  }

  #listen(): void {
    const silentMs = performance.now() - this.#heardAt;
    if (this.#outstanding > 0 && silentMs > MAX_SILENT_HEARTBEATS * this.#heartbeatMs) {
      this.#fail(`the consumer has sent neither a message nor a heartbeat for ${Math.round(silentMs)} ms`);
    }
  }
}
