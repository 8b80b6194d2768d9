import { headers as emptyHeaders, type MsgHdrs } from "nats";
import { encodedHeaderName, encodedHeaderValue } from "../../../model/headerEncoding.ts";
import type { OutboundMessage } from "../../../ports/destination.ts";

const MESSAGE_ID_HEADER = "Nats-Msg-Id";
/**
 * Headers with this prefix are instructions to the stream: `Nats-Rollup` empties it, `Nats-Expected-Stream` and its like refuse the message. A row may
 * have them from whoever sent the message in, and those of a message read from a stream spoke of that stream; so they stay behind.
 */
const INSTRUCTION = /^nats-/i;
/** Printable ASCII without the colon (NATS client protocol, "HPUB"). */
const NAME = /^[!-9;-~]+$/;

/**
 * The headers of one message: its own, and `Nats-Msg-Id` with its id, by which a stream de-duplicates. Values go as
 * UTF-8. A name or value that the wire cannot carry goes encoded, as over HTTP.
 */
export function natsHeaders({ id, headers }: OutboundMessage): MsgHdrs {
  const sent = emptyHeaders();
  for (const name of Object.keys(headers)) {
    if (INSTRUCTION.test(name)) continue;
    const sentName = NAME.test(name) ? name : encodedHeaderName(name, NAME);
    if (sentName !== null) sent.append(sentName, encodedHeaderValue(name.toLowerCase(), headers[name] ?? ""));
  }
  sent.append(MESSAGE_ID_HEADER, id);
  return sent;
}
