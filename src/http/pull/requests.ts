import { isUuid } from "../../core/finished/requests.ts";
import { jsonText } from "../../core/receipt/jsonDocument.ts";
import type { ClaimToken, MessageId } from "../../model/rows.ts";

/** The bodies that pull clients send (docs/pull.md). Unknown fields are ignored; null counts as absent. */

/** Which rows of which claim. */
interface ClaimReference {
  readonly token: ClaimToken;
  /** Null for all of the claim. */
  readonly ids: readonly MessageId[] | null;
}

/** The body is not valid; the message is the reason, for the author of the client. */
export class InvalidRequest extends Error {
  override readonly name = "InvalidRequest";
}

/** The bounds and defaults of the numbers in these bodies; the default lease is `inbox.pull.leaseMs`. */
export const NUMBERS = {
  max: { from: 1, to: 1000, fallback: 10 },
  leaseMs: { from: 1000, to: 3_600_000, fallback: null },
  waitMs: { from: 0, to: 60_000, fallback: 0 },
  delayMs: { from: 0, to: 86_400_000, fallback: 0 },
} as const;

/** @param leaseMs the lease of a request that names none. @throws InvalidRequest */
export function readClaim(body: Buffer, leaseMs: number) {
  const fields = readObject(body);
  return {
    max: wholeNumber(fields, "max", NUMBERS.max.fallback),
    leaseMs: wholeNumber(fields, "leaseMs", leaseMs),
    waitMs: wholeNumber(fields, "waitMs", NUMBERS.waitMs.fallback),
  };
}

/** @throws InvalidRequest */
export function readAck(body: Buffer): ClaimReference {
  return reference(readObject(body));
}

/** @throws InvalidRequest */
export function readNack(body: Buffer) {
  const fields = readObject(body);
  const error = fields.error ?? null;
  if (error !== null && typeof error !== "string") throw new InvalidRequest("error must be a text");
  const delayMs = wholeNumber(fields, "delayMs", NUMBERS.delayMs.fallback);
  return { ...reference(fields), delayMs, error };
}

/** @param leaseMs the lease of a request that names none. @throws InvalidRequest */
export function readExtend(body: Buffer, leaseMs: number) {
  const fields = readObject(body);
  return { ...reference(fields), leaseMs: wholeNumber(fields, "leaseMs", leaseMs) };
}

type Fields = Readonly<Record<string, unknown>>;

/** An empty body is an object without fields. */
function readObject(body: Buffer): Fields {
  if (body.length === 0) return {};
  const text = jsonText(body);
  if (text === null) throw new InvalidRequest("the body is not UTF-8");
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    throw new InvalidRequest("the body is not JSON");
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
    throw new InvalidRequest("the body must be a JSON object");
  }
  return parsed as Fields;
}

function wholeNumber(fields: Fields, name: keyof typeof NUMBERS, fallback: number): number {
  const { from, to } = NUMBERS[name];
  const value = fields[name] ?? null;
  if (value === null) return fallback;
  if (typeof value === "number" && Number.isInteger(value) && value >= from && value <= to) return value;
  throw new InvalidRequest(`${name} must be a whole number from ${from} to ${to}`);
}

function reference(fields: Fields): ClaimReference {
  const { claimToken } = fields;
  if (!isUuid(claimToken)) throw new InvalidRequest("claimToken must be the UUID that the claim returned");
  return { token: claimToken.toLowerCase() as ClaimToken, ids: idList(fields.ids ?? null) };
}

function idList(value: unknown): readonly MessageId[] | null {
  if (value === null) return null;
  if (!Array.isArray(value) || !value.every(isUuid)) {
    throw new InvalidRequest("ids must be a list of message ids (UUIDs)");
  }
  // Some clients build the list in a loop: an empty one must not mean "all".
  if (value.length === 0) throw new InvalidRequest("ids is empty; leave it out to name all messages of the claim");
  return [...new Set(value.map((id) => id.toLowerCase() as MessageId))];
}
