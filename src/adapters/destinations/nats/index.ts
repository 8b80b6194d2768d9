import { setImmediate as nextTurn } from "node:timers/promises";
import { createInbox, ErrorCode, type Msg, type NatsError } from "nats";
import { errorText, type PublishError } from "../../../model/errors.ts";
import type { Destination } from "../../../ports/destination.ts";
import type { AdapterTools } from "../../../ports/kinds.ts";
import { brokerDestination } from "../../brokers/destination.ts";
import { NatsFault } from "../../brokers/nats/faults.ts";
import { NatsDialer, type NatsLink, statusOf } from "../../brokers/nats/link.ts";
import { SharedConnection } from "../../brokers/sharedConnection.ts";
import { natsError, noConnection } from "./errors.ts";
import type { NatsDestinationConfig } from "./kind.ts";
import { configuredInternalToken, PendingMessage } from "./message.ts";

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
  const shared = new SharedConnection<Session>({
    broker: dialer.servers,
    connect: async (signal) => {
      const link = await dialer.dial(signal);
      return jetStream ? new JetStreamSession(link) : new CoreSession(link);
    },
    onEnd: ({ link }, ended) => void link.ended.then(ended),
    disconnect: ({ link }) => link.close("the destination was closed"),
    tools,
  });
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
    close: () => shared.close(new NatsFault("other", "the destination was closed")),
  });
}

/** Publishes over one connection. */
interface Session {
  readonly link: NatsLink;
  /** Sends a publish and settles it once the receiver has it or cannot get it. Does not throw. */
  send(pending: PendingMessage): void;
}

/** The connection ended before the outcome was known. */
function lostBefore(what: string, reason: string): PublishError {
  return natsError("connection_lost", `${reason}, before ${what}; the message may have arrived`);
}

function notPermitted(subject: string): PublishError {
  return natsError("permission", `the user may not publish to ${subject}: grant it in the server's permissions`);
}

/**
 * Writes a publish to the connection, or fails it when the client refuses.
 *
 * @param reply subject of the acknowledgement
 * @returns whether it was written
 */
function write(link: NatsLink, pending: PendingMessage, reply?: string): boolean {
  const { connection } = link;
  const { subject, body, headers } = pending;
  try {
    connection.publish(subject, body, reply === undefined ? { headers } : { headers, reply });
    return true;
  } catch (error) {
    pending.fail(writeError(link, pending, error));
    return false;
  }
}

function writeError({ connection, lost }: NatsLink, { subject, body, headers }: PendingMessage, error: unknown) {
  switch ((error as NatsError).code) {
    case ErrorCode.MaxPayloadExceeded: {
      // The client measures body and headers as the server does, which closes the connection of a client that sends
      // more.
      const encoded = headers as unknown as { encode(): Uint8Array };
      const size = body.length + encoded.encode().length;
      const max = connection.info?.max_payload;
      return natsError(
        "too_large",
        `the message for ${subject} has ${size} bytes with its headers, the server takes ${max} at most (max_payload)`,
      );
    }
    case ErrorCode.ServerOptionNotAvailable:
      return natsError("rejected", "the server does not support headers: upgrade it or enable them");
    default:
      return lost === undefined
        ? natsError("other", `the message for ${subject} could not be sent: ${errorText(error)}`)
        : natsError("connection_lost", lost);
  }
}

/**
 * Publishes without acknowledgement: a publish succeeds when the server has read it, as a flush shows; whether anybody
 * receives it is unknown. One flush serves all publishes of a turn, and all that arrive during the previous flush.
 */
class CoreSession implements Session {
  readonly link: NatsLink;
  /** Written, not covered by a flush. */
  #written = new Set<PendingMessage>();
  /** Covered by the running flush. */
  #flushed: ReadonlySet<PendingMessage> = new Set();
  #flushing = false;

  constructor(link: NatsLink) {
    this.link = link;
    link.onViolation(({ operation, subject }) => {
      if (operation !== "publish") return;
      for (const pending of [...this.#flushed, ...this.#written])
        if (pending.subject === subject) pending.fail(notPermitted(subject));
    });
  }

  send(pending: PendingMessage): void {
    if (!write(this.link, pending)) return;
    pending.sent("waiting for the server to read it");
    this.#written.add(pending);
    if (this.#flushing) return;
    this.#flushing = true;
    void this.#flush();
  }

  async #flush(): Promise<void> {
    await nextTurn();
    while (this.#written.size > 0) {
      this.#flushed = this.#written;
      this.#written = new Set();
      try {
        await this.link.flush();
        // The server reports violations before it answers the flush; the client passes them on a moment later.
        await nextTurn();
        for (const pending of this.#flushed) pending.succeed();
      } catch (error) {
        const lost = lostBefore("the server had confirmed to have read it", errorText(error));
        for (const pending of this.#flushed) pending.fail(lost);
      }
    }
    this.#flushed = new Set();
    this.#flushing = false;
  }
}

const NO_RESPONDERS = 503;

/**
 * Publishes to streams: a stream answers each message once it is stored (NATS ADR-22), also for a duplicate of its
 * `Nats-Msg-Id`.
 *
 * One subscription receives all answers, each on its own subject. The client's own request function makes a timer and
 * an error object per message, and an answer with headers it cannot read would end its reader.
 */
class JetStreamSession implements Session {
  readonly link: NatsLink;
  readonly #waiting = new Map<string, PendingMessage>();
  readonly #inbox = `${createInbox()}.`;
  #sent = 0;

  constructor(link: NatsLink) {
    this.link = link;
    link.connection.subscribe(`${this.#inbox}*`, {
      callback: (error, message) => {
        if (error === null) this.#answered(message);
        else this.#unanswerable(errorText(error));
      },
    });
    link.onViolation(({ operation, subject }) => {
      if (operation === "publish") this.#failAll(notPermitted(subject), (each) => each.subject === subject);
    });
    void link.ended.then((reason) => this.#failAll(lostBefore("the stream's acknowledgement", reason)));
  }

  send(pending: PendingMessage): void {
    this.#sent += 1;
    const token = this.#sent.toString(36);
    if (!write(this.link, pending, this.#inbox + token)) return;
    this.#waiting.set(token, pending);
    pending.sent("waiting for the stream's acknowledgement", () => this.#waiting.delete(token));
  }

  #answered(message: Msg): void {
    const pending = this.#waiting.get(message.subject.slice(this.#inbox.length));
    if (pending === undefined) return;
    const error = refusal(message, pending.subject);
    if (error === undefined) pending.succeed();
    else pending.fail(error);
  }

  /** Without permission to receive answers, every publish on this connection fails. */
  #unanswerable(reason: string): void {
    this.#failAll(
      natsError("permission", `the acknowledgement cannot be received (${reason}): permit subscriptions to _INBOX.>`),
    );
    void this.link.close("the user may not subscribe to _INBOX.>, where acknowledgements arrive");
  }

  #failAll(error: PublishError, which: (pending: PendingMessage) => boolean = () => true): void {
    for (const pending of [...this.#waiting.values()]) if (which(pending)) pending.fail(error);
  }
}

/** The possible answer to a publish (NATS ADR-22, "PubAck"); any responder may have written it. */
interface Answer {
  readonly stream?: unknown;
  readonly error?: unknown;
}

/**
 * Reads an answer. Does not throw: that would end the client's reader.
 *
 * @returns why the message was not stored; undefined when it was
 */
function refusal(message: Msg, subject: string): PublishError | undefined {
  if (message.data.length === 0) {
    if (statusOf(message).code !== NO_RESPONDERS) return noAcknowledgement(subject);
    return natsError(
      "no_stream",
      `no stream takes the subject ${subject}: create a stream whose subjects match it, enable JetStream at the server if it is off, or set jetStream: false`,
    );
  }
  const { stream, error } = answerOf(message);
  const named = typeof stream === "string" && stream !== "";
  if (error !== undefined) {
    const by = named ? `the stream ${stream}` : "JetStream";
    return natsError("rejected", `${by} refused the message for ${subject}: ${reasonOf(error)}`);
  }
  return named ? undefined : noAcknowledgement(subject);
}

function noAcknowledgement(subject: string): PublishError {
  return natsError(
    "bad_acknowledgement",
    `the answer on ${subject} did not come from a stream: create a stream whose subjects match it, or set jetStream: false`,
  );
}

function reasonOf(error: unknown): string {
  const { description, err_code: code } = Object(error) as {
    readonly description?: unknown;
    readonly err_code?: unknown;
  };
  const text = typeof description === "string" ? description : "no reason given";
  return typeof code === "number" ? `${text} (error ${code})` : text;
}

function answerOf(message: Msg): Answer {
  try {
    return Object(message.json()) as Answer;
  } catch {
    return {};
  }
}
