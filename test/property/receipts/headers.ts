import type { Dice } from "./dice.ts";

/** The header whose value is compared with what is stored. */
export const COMPARED_HEADER = "X-Any";

/** Headers with any values that HTTP allows (RFC 9110, section 5.5), a byte a character. */
export function anyHeaders(dice: Dice): Record<string, string> {
  const headers: Record<string, string> = { [COMPARED_HEADER]: anyValue(dice) };
  if (dice.chance(0.7)) headers["content-type"] = dice.chance(0.5) ? dice.pick(CONTENT_TYPES) : anyValue(dice);
  for (let more = dice.below(3); more > 0; more -= 1) headers[anyName(dice)] = anyValue(dice);
  return headers;
}

const CONTENT_TYPES = [
  "application/json",
  "application/json; charset=utf-16",
  "text/plain",
  "multipart/form-data; boundary=x",
  "application/x-www-form-urlencoded",
  "application/octet-stream",
] as const;

/** Names that the service, or JavaScript, knows. */
const KNOWN_NAMES = [
  "X-Correlation-Id",
  "traceparent",
  "content-encoding",
  "accept",
  "authorization",
  "x-message-id",
  "x-source",
  "__proto__x",
  "constructor",
  "toString",
  "range",
  "x-http-method-override",
] as const;
const NAME_CHARACTERS = [..."!#$%&'*+-.^_`|~09azAZ"] as const;

function anyName(dice: Dice): string {
  if (dice.chance(0.5)) return dice.pick(KNOWN_NAMES);
  return `y${Array.from({ length: dice.below(12) }, () => dice.pick(NAME_CHARACTERS)).join("")}`;
}

function anyValue(dice: Dice): string {
  return dice.headerText(dice.below(dice.chance(0.02) ? 4000 : 16));
}
