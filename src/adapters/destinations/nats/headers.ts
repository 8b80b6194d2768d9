import { headers as emptyHeaders, type MsgHdrs } from "nats";
import type { OutboundMessage } from "../../../ports/destination.ts";
import { natsError } from "./errors.ts";

const MESSAGE_ID_HEADER = "Nats-Msg-Id";
/**
 * Headers with this prefix are instructions to the stream: `Nats-Rollup` empties it, `Nats-Expected-Stream` and its like refuse the message. A row may
 * have them from whoever sent the message in, and those of a message read from a stream spoke of that stream; so they stay behind.
 */
const INSTRUCTION = /^nats-/i;
/** Printable ASCII without the colon (NATS client protocol, "HPUB"). */
const NAME = /^[!-9;-~]+$/;

/**
 * The headers of one message: its own, and `Nats-Msg-Id` with its id, by which a stream de-duplicates. Values go as UTF-8; blanks around a value are not
 * part of it.
 *
 * @throws PublishError `header_invalid` for a name or value that the wire cannot hold: to leave the header out would hide from the receiver what the
 *   sender said, and to send it would let a row write headers of its own. The message does not repeat the value
 */
export function natsHeaders({ id, headers }: OutboundMessage): MsgHdrs {
  const sent = emptyHeaders();
  for (const name of Object.keys(headers)) {
    if (INSTRUCTION.test(name)) continue;
    const value = headers[name] ?? "";
    if (!NAME.test(name)) throw invalid(`the header name ${JSON.stringify(name)} cannot go over NATS`);
    if (/[\r\n]/.test(value)) {
      throw invalid(`the value of the header ${JSON.stringify(name)} cannot go over NATS: it holds a line break`);
    }
    sent.append(name, value);
  }
  sent.append(MESSAGE_ID_HEADER, id);
  return sent;
}

function invalid(message: string) {
  return natsError("header_invalid", message);
}
