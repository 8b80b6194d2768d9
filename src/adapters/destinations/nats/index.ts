import { setImmediate as nextTurn } from "node:timers/promises";
import { createInbox, ErrorCode, headers as emptyHeaders, type Msg, type MsgHdrs, type NatsError } from "nats";
import { errorText, PublishError } from "../../../model/errors.ts";
import { encodedHeaderName, encodedHeaderValue } from "../../../model/text.ts";
import type { Destination, OutboundMessage } from "../../../ports/destination.ts";
import type { AdapterTools } from "../../../ports/kinds.ts";
import { NATS_FAULT_CODES, NatsFault } from "../../brokers/nats/faults.ts";
import { NatsDialer, type NatsLink, statusOf } from "../../brokers/nats/link.ts";
import { SharedConnection } from "../../brokers/sharedConnection.ts";
import { brokerDestination } from "../brokerDestination.ts";
import { PendingPublish, type PublishBounds } from "../pendingPublish.ts";
import type { NatsDestinationConfig } from "./kind.ts";

/** Timeout of connecting to one server; then the next one is tried. */
const MAX_CONNECT_MS = 5000;

/**
 * A NATS destination (spec, "Subject-broker destination"): one connection, many publishes in flight.
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

/** Writes a publish to the connection, or fails it when the client refuses. @returns whether it was written */
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

function writeError({ connection, endReason }: NatsLink, { subject, body, headers }: PendingMessage, error: unknown) {
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
      return endReason === undefined
        ? natsError("other", `the message for ${subject} could not be sent: ${errorText(error)}`)
        : natsError("connection_lost", endReason);
  }
}

/**
 * Publishes without acknowledgement: a publish succeeds when the server has read it, as a flush shows; whether anybody
 * receives it is unknown. One flush serves all publishes of a turn, and all that arrive during the previous flush.
 */
class CoreSession implements Session {
  readonly link: NatsLink;
  /** Written, not covered by a flush. */
  #writtenMessages = new Set<PendingMessage>();
  /** Covered by the running flush. */
  #flushedMessages: ReadonlySet<PendingMessage> = new Set();
  #flushing = false;

  constructor(link: NatsLink) {
    this.link = link;
    link.onViolation(({ operation, subject }) => {
      if (operation !== "publish") return;
      for (const pending of [...this.#flushedMessages, ...this.#writtenMessages])
        if (pending.subject === subject) pending.fail(notPermitted(subject));
    });
  }

  send(pending: PendingMessage): void {
    if (!write(this.link, pending)) return;
    pending.markSent("waiting for the server to read it");
    this.#writtenMessages.add(pending);
    if (this.#flushing) return;
    this.#flushing = true;
    void this.#flush();
  }

  async #flush(): Promise<void> {
    await nextTurn();
    while (this.#writtenMessages.size > 0) {
      this.#flushedMessages = this.#writtenMessages;
      this.#writtenMessages = new Set();
      try {
        await this.link.flush();
        // The server reports violations before it answers the flush; the client passes them on a moment later.
        await nextTurn();
        for (const pending of this.#flushedMessages) pending.succeed();
      } catch (error) {
        const lost = lostBefore("the server had confirmed to have read it", errorText(error));
        for (const pending of this.#flushedMessages) pending.fail(lost);
      }
    }
    this.#flushedMessages = new Set();
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
  #sentCount = 0;

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
    this.#sentCount += 1;
    const token = this.#sentCount.toString(36);
    if (!write(this.link, pending, this.#inbox + token)) return;
    this.#waiting.set(token, pending);
    pending.markSent("waiting for the stream's acknowledgement", () => this.#waiting.delete(token));
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

/** Reads an answer. Does not throw: that would end the client's reader. @returns why the message was not stored */
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

/** One publish and its NATS form. */
class PendingMessage extends PendingPublish {
  readonly subject: string;
  readonly headers: MsgHdrs;
  readonly body: Buffer;
  #phase = "waiting for a connection";

  /**
   * @param internalToken the internal subject that the configuration names, if any
   * @throws PublishError when NATS cannot carry the message
   */
  constructor(message: OutboundMessage, bounds: PublishBounds, internalToken: string | undefined) {
    super(bounds);
    this.subject = publishableSubject(message.address, internalToken);
    this.headers = natsHeaders(message);
    this.body = Buffer.from(message.body, "utf8");
  }

  /** Marks it as sent. @param phase what it waits for, for the timeout error @param onEnd called when it ends */
  markSent(phase: string, onEnd?: () => void): void {
    this.#phase = phase;
    if (onEnd !== undefined) this.onEnd = onEnd;
  }

  protected override expiryError(): PublishError {
    return natsError("timeout", `the publish to ${this.subject} took longer than ${this.timeoutMs} ms, ${this.#phase}`);
  }
}

const MESSAGE_ID_HEADER = "Nats-Msg-Id";
/**
 * Headers with this prefix instruct the stream: `Nats-Rollup` empties it, `Nats-Expected-Stream` and others refuse the
 * message. A row may have them from an untrusted sender or from another stream, so they are dropped.
 */
const INSTRUCTION = /^nats-/i;
/** Printable ASCII without the colon (NATS client protocol, "HPUB"). */
const NAME = /^[!-9;-~]+$/;

/**
 * The headers of one message: its own, and the id of the delivery as `Nats-Msg-Id`, by which a stream de-duplicates.
 * Values are UTF-8. A name or value that NATS cannot carry is encoded, as over HTTP.
 */
function natsHeaders({ deliveryId, headers }: OutboundMessage): MsgHdrs {
  const sent = emptyHeaders();
  for (const name of Object.keys(headers)) {
    if (INSTRUCTION.test(name)) continue;
    const sentName = NAME.test(name) ? name : encodedHeaderName(name, NAME);
    if (sentName !== null) sent.append(sentName, encodedHeaderValue(name.toLowerCase(), headers[name] ?? ""));
  }
  sent.append(MESSAGE_ID_HEADER, deliveryId);
  return sent;
}

/**
 * The server closes a connection whose control line (subject, reply subject, sizes) exceeds 4,096 bytes
 * (`max_control_line`), which would fail other publishes too.
 */
const MAX_BYTES = 3800;
const BLANK = /[\s\p{Cc}]/u;
/** The server's own interface: a message there would be a command, such as the deletion of a stream. */
const COMMANDS = /^\$(?:JS|SYS)(?:\.|$)/;
/** Internal to servers and clients: key-value and object stores, MQTT, services, reply inboxes. */
const INTERNAL = /^(?:\$[^.]*|_INBOX|_R_|_GR_)(?:\.|$)/;

/**
 * The internal first token that the configuration allows a destination to publish to: `$KV` of `$KV.prices.{{ key }}`.
 * A token filled in from a message does not count.
 *
 * @param subject the configured template
 * @param subjectFrom the column that holds the subject instead
 */
export function configuredInternalToken(subject: string, subjectFrom: string | undefined): string | undefined {
  if (subjectFrom !== undefined || !INTERNAL.test(subject)) return undefined;
  const token = subject.split(".", 1)[0] ?? "";
  return token.includes("{{") ? undefined : token;
}

/** @returns the rendered subject, safe to publish to @throws PublishError `subject_invalid` with the reason */
export function publishableSubject(address: string | null, internalToken: string | undefined): string {
  if (address === null || address === "") throw invalid("the subject is empty");
  const shown = JSON.stringify(address.length > 200 ? `${address.slice(0, 199)}…` : address);
  if (Buffer.byteLength(address) > MAX_BYTES) throw invalid(`the subject ${shown} is longer than ${MAX_BYTES} bytes`);
  if (BLANK.test(address)) throw invalid(`the subject ${shown} holds a blank or control character`);
  const tokens = address.split(".");
  if (COMMANDS.test(address)) throw invalid(`the subject ${shown} belongs to the server's own interface`);
  if (INTERNAL.test(address) && tokens[0] !== internalToken) {
    throw invalid(
      `the subject ${shown} belongs to NATS itself: only the configuration can name ${tokens[0]}, literally at the beginning of subject`,
    );
  }
  for (const token of tokens) {
    if (token === "") throw invalid(`the subject ${shown} has an empty token: two dots in a row, or one at an end`);
    if (token === "*" || token === ">") throw invalid(`the subject ${shown} holds the wildcard ${token}`);
  }
  return address;
}

function invalid(message: string) {
  return natsError("subject_invalid", message);
}

/** Why a publish to NATS failed: the codes of its `PublishError`. */
export const NATS_ERROR_CODES = [
  ...NATS_FAULT_CODES,
  /** The user may not publish to the subject, or not receive the acknowledgement. */
  "permission",
  /** No stream takes the subject. */
  "no_stream",
  /** The stream refused the message: it is full, sealed, or the message exceeds its limits. */
  "rejected",
  /** The answer came from something other than a stream. */
  "bad_acknowledgement",
  /** Body and headers exceed the server's limit. */
  "too_large",
  /** This subject cannot be published to. */
  "subject_invalid",
  "closed",
] as const;
type NatsErrorCode = (typeof NATS_ERROR_CODES)[number];

/** A {@link PublishError} whose code is one of {@link NATS_ERROR_CODES}. */
function natsError(code: NatsErrorCode, message: string): PublishError {
  return new PublishError(code, message, { isPermanent: code === "subject_invalid" });
}

function noConnection(error: unknown): PublishError {
  if (error instanceof PublishError) return error;
  if (error instanceof NatsFault) return natsError(error.code, `no connection: ${error.message}`);
  return natsError("other", "no connection: the attempt to connect failed for an unknown reason");
}
