import { natsError } from "./errors.ts";

/**
 * The server closes a connection whose control line (subject, reply subject, sizes) is longer than 4,096 bytes (`max_control_line`), and with it fails
 * the publishes of others.
 */
const MAX_BYTES = 3800;
const BLANK = /[\s\p{Cc}]/u;
/** The interface of the server itself: a message there would be a command, such as the deletion of a stream. */
const COMMANDS = /^\$(?:JS|SYS)(?:\.|$)/;
/** What servers and clients use among themselves: key-value and object stores, MQTT, services; inboxes for answers. */
const INTERNAL = /^(?:\$[^.]*|_INBOX|_R_|_GR_)(?:\.|$)/;

/**
 * The internal first token that a destination may publish to, because its configuration says so: `$KV` of `$KV.prices.{{ key }}`.
 * What a message fills in is none.
 *
 * @param subject the configured template
 * @param subjectFrom the column that holds the subject instead
 * @returns the token; undefined when there is none
 */
export function configuredInternalToken(subject: string, subjectFrom: string | undefined): string | undefined {
  if (subjectFrom !== undefined || !INTERNAL.test(subject)) return undefined;
  const token = subject.split(".", 1)[0] ?? "";
  return token.includes("{{") ? undefined : token;
}

/**
 * Checks that a message can be published to a subject.
 *
 * @param address the rendered subject
 * @param internalToken from {@link configuredInternalToken}
 * @returns the subject
 * @throws PublishError `subject_invalid` that says what is wrong with it
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
