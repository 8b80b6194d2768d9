import { headers as emptyHeaders, type MsgHdrs } from "nats";
import type { PublishError } from "../../../model/errors.ts";
import { encodedHeaderName, encodedHeaderValue } from "../../../model/text.ts";
import type { OutboundMessage } from "../../../ports/destination.ts";
import { PendingPublish, type PublishBounds } from "../../brokers/pendingPublish.ts";
import { natsError } from "./errors.ts";

/** One publish and its NATS form. */
export class PendingMessage extends PendingPublish {
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

  /**
   * Marks it as sent.
   *
   * @param phase what it waits for, for the timeout error
   * @param onEnd called when it ends, for any reason
   */
  sent(phase: string, onEnd?: () => void): void {
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
 * The headers of one message: its own, and the id of the delivery as `Nats-Msg-Id`, by which a stream de-duplicates. Values are UTF-8.
 * A name or value that NATS cannot carry is encoded, as over HTTP.
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
 * @returns the token; undefined without one
 */
export function configuredInternalToken(subject: string, subjectFrom: string | undefined): string | undefined {
  if (subjectFrom !== undefined || !INTERNAL.test(subject)) return undefined;
  const token = subject.split(".", 1)[0] ?? "";
  return token.includes("{{") ? undefined : token;
}

/**
 * @param address the rendered subject
 * @param internalToken from {@link configuredInternalToken}
 * @returns the subject, safe to publish to
 * @throws PublishError `subject_invalid` with the reason
 */
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
