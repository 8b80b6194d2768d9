import { createInbox, type Msg } from "nats";
import { errorText, type PublishError } from "../../../model/errors.ts";
import type { NatsLink } from "../../brokers/nats/link.ts";
import { natsError } from "./errors.ts";
import type { Publication } from "./publication.ts";
import { lostBefore, notPermitted, type Session, write } from "./session.ts";

const NO_RESPONDERS = 503;

/**
 * Publishes to streams: each message is answered by its stream once it is stored there (NATS ADR-22). A stream that has the message already, by its
 * `Nats-Msg-Id`, answers as if it had stored it.
 *
 * One subscription receives all answers, each on a subject of its own. The client's own request function would make a timer and an error object for
 * each message, and an answer with headers it cannot read would end its reader.
 */
export class JetStreamSession implements Session {
  readonly link: NatsLink;
  readonly #waiting = new Map<string, Publication>();
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

  send(publication: Publication): void {
    this.#sent += 1;
    const token = this.#sent.toString(36);
    if (!write(this.link, publication, this.#inbox + token)) return;
    this.#waiting.set(token, publication);
    publication.sent("waiting for the stream's acknowledgement", () => this.#waiting.delete(token));
  }

  #answered(message: Msg): void {
    const publication = this.#waiting.get(message.subject.slice(this.#inbox.length));
    if (publication === undefined) return;
    const error = refusal(message, publication.subject);
    if (error === undefined) publication.succeed();
    else publication.fail(error);
  }

  /** Without permission to receive the answers, no publish on this connection can succeed. */
  #unanswerable(reason: string): void {
    this.#failAll(
      natsError("permission", `the acknowledgement cannot be received (${reason}): permit subscriptions to _INBOX.>`),
    );
    void this.link.close("the user may not subscribe to _INBOX.>, where acknowledgements arrive");
  }

  #failAll(error: PublishError, which: (publication: Publication) => boolean = () => true): void {
    for (const publication of [...this.#waiting.values()]) if (which(publication)) publication.fail(error);
  }
}

/** What an answer to a publish may hold (NATS ADR-22, "PubAck"); whoever answers may have put anything there. */
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
    if (statusOf(message) !== NO_RESPONDERS) return noAcknowledgement(subject);
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
    `something answered on ${subject} that is no stream: create a stream whose subjects match it, or set jetStream: false`,
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

/** Headers of whoever answers may be unreadable for the client. */
function statusOf(message: Msg): number | undefined {
  try {
    return message.headers?.code;
  } catch {
    return undefined;
  }
}
