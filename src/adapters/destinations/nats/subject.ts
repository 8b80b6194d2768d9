import { natsError } from "./errors.ts";

/**
 * The server closes a connection whose control line (subject, reply subject, sizes) is longer than 4,096 bytes (`max_control_line`), and with it fails
 * the publishes of others.
 */
const MAX_BYTES = 3800;
const BLANK = /[\s\p{Cc}]/u;
/** The interface of the server itself: a message there would be a command, such as the deletion of a stream. */
const RESERVED = /^\$(?:JS|SYS)(?:\.|$)/;

/**
 * Checks that a message can be published to a subject.
 *
 * @param address the rendered subject
 * @returns the subject
 * @throws PublishError `subject_invalid` that says what is wrong with it
 */
export function publishableSubject(address: string | null): string {
  if (address === null || address === "") throw invalid("the subject is empty");
  const shown = JSON.stringify(address.length > 200 ? `${address.slice(0, 199)}…` : address);
  if (Buffer.byteLength(address) > MAX_BYTES) throw invalid(`the subject ${shown} is longer than ${MAX_BYTES} bytes`);
  if (BLANK.test(address)) throw invalid(`the subject ${shown} holds a blank or control character`);
  if (RESERVED.test(address)) throw invalid(`the subject ${shown} belongs to the server's own interface`);
  for (const token of address.split(".")) {
    if (token === "") throw invalid(`the subject ${shown} has an empty token: two dots in a row, or one at an end`);
    if (token === "*" || token === ">") throw invalid(`the subject ${shown} holds the wildcard ${token}`);
  }
  return address;
}

function invalid(message: string) {
  return natsError("subject_invalid", message);
}
