import { ErrorCode, type NatsError } from "nats";
import type { PublishError } from "../../../model/errors.ts";
import { errorText } from "../../../model/errors.ts";
import type { NatsLink } from "../../brokers/nats/link.ts";
import { natsError } from "./errors.ts";
import type { Publication } from "./publication.ts";

/** Publishes over one connection. */
export interface Session {
  readonly link: NatsLink;
  /** Sends a publish and settles it once the receiver has it, or cannot have it. Does not throw. */
  send(publication: Publication): void;
}

/** The connection ended before it was known whether the message arrived. */
export function lostBefore(what: string, reason: string): PublishError {
  return natsError("connection_lost", `${reason}, before ${what}; the message may have arrived`);
}

/** The server does not permit a publish. */
export function notPermitted(subject: string): PublishError {
  return natsError("permission", `the user may not publish to ${subject}: grant it in the server's permissions`);
}

/**
 * Writes a publish to the connection, or fails it when the client refuses to.
 *
 * @param reply subject of the acknowledgement
 * @returns whether it was written
 */
export function write(link: NatsLink, publication: Publication, reply?: string): boolean {
  const { connection } = link;
  const { subject, body, headers } = publication;
  try {
    connection.publish(subject, body, reply === undefined ? { headers } : { headers, reply });
    return true;
  } catch (error) {
    publication.fail(writeError(link, publication, error));
    return false;
  }
}

function writeError({ connection, lost }: NatsLink, { subject, body, headers }: Publication, error: unknown) {
  switch ((error as NatsError).code) {
    case ErrorCode.MaxPayloadExceeded: {
      // The client measures body and headers, as the server would, which cuts the connection of a client that sends more.
      const encoded = headers as unknown as { encode(): Uint8Array };
      const size = body.length + encoded.encode().length;
      const max = connection.info?.max_payload;
      return natsError(
        "too_large",
        `the message for ${subject} has ${size} bytes with its headers, the server takes ${max} at most (max_payload)`,
      );
    }
    case ErrorCode.ServerOptionNotAvailable:
      return natsError("rejected", "the server takes no headers: a newer one is needed, or headers enabled there");
    default:
      return lost === undefined
        ? natsError("other", `the message for ${subject} could not be sent: ${errorText(error)}`)
        : natsError("connection_lost", lost);
  }
}
