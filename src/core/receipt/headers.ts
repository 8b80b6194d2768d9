import { randomUUID } from "node:crypto";
import type { Headers } from "../../model/rows.ts";
import { compileTopicPattern } from "../delivery/routes.ts";
import { digest, findHeader } from "./attributes.ts";

/** One rule: a header name in any letter case and exactly one test (spec, "Header filter"). */
export interface HeaderRule {
  readonly header: string;
  readonly equals?: string | undefined;
  readonly in?: readonly string[] | undefined;
  /** A topic glob on the whole value. */
  readonly matches?: string | undefined;
  readonly exists?: boolean | undefined;
}

export interface HeaderFilterSettings {
  /** The message must match every one of these. */
  readonly require?: readonly HeaderRule[] | undefined;
  /** The message must match none of these. */
  readonly exclude?: readonly HeaderRule[] | undefined;
}

/** Tells whether a message with these headers passes. */
type HeaderFilter = (headers: Headers) => boolean;

/**
 * Compiles the header filter of a source.
 *
 * @param settings the source's `filter` block
 * @returns the filter; one without rules lets everything pass
 * @throws Error that names the header of a rule without exactly one test, or whose glob is wrong
 */
export function compileHeaderFilter(settings: HeaderFilterSettings): HeaderFilter {
  const required = (settings.require ?? []).map(compileRule);
  const excluded = (settings.exclude ?? []).map(compileRule);
  return (headers) => required.every((matches) => matches(headers)) && !excluded.some((matches) => matches(headers));
}

function compileRule(rule: HeaderRule): HeaderFilter {
  const name = rule.header.toLowerCase();
  const test = compileTest(rule);
  return (headers) => {
    const value = findHeader(headers, name);
    return value !== undefined && test(value);
  };
}

function compileTest(rule: HeaderRule): (value: string) => boolean {
  const tests = [
    rule.equals === undefined ? [] : [equalTo(rule.equals)],
    rule.in === undefined ? [] : [oneOf(rule.in)],
    rule.matches === undefined ? [] : [compileTopicPattern(rule.matches)],
    rule.exists === true ? [present] : [],
  ].flat();
  const [test] = tests;
  if (test === undefined || tests.length > 1) {
    throw new Error(
      `the filter rule on header ${JSON.stringify(rule.header)} has ${tests.length} tests; ` +
        "give exactly one of equals, in, matches or exists: true",
    );
  }
  return test;
}

const equalTo = (expected: string) => (value: string) => value === expected;
const oneOf = (allowed: readonly string[]) => {
  const values = new Set(allowed);
  return (value: string) => values.has(value);
};
const present = () => true;

/** Has a column of its own, and so is not stored among the headers. */
export const CORRELATION_HEADER = "X-Correlation-Id";

const MAX_CORRELATION_ID_LENGTH = 255;
/** What can stand in a response header as it is: no control characters. Bytes above 0x7f are latin1 text. */
const CORRELATION_ID = /^[\x20-\x7e\x80-\xff]+$/;

/**
 * The correlation id of a message.
 *
 * @param received what its sender gave: the header `X-Correlation-Id`, or a broker's own property
 * @returns the received id; `sha256:` and the digest of its UTF-8 text for one that no column or header should hold (longer than 255 characters,
 *   control characters, characters beyond latin1), so that who knows the id finds the message; a new UUID when there is none
 */
export function correlationId(received: string | readonly string[] | undefined): string {
  if (typeof received !== "string" || received === "") return randomUUID();
  if (received.length <= MAX_CORRELATION_ID_LENGTH && CORRELATION_ID.test(received)) return received;
  return digest(Buffer.from(received));
}

/**
 * Headers that carry credentials. The received headers of an HTTP source are stored and travel on to its receivers; what
 * proves to this service, or to a proxy in front of it, who the sender is must not (spec, "POST <inbox.basePath><path>").
 *
 * Signatures of a body (`X-Hub-Signature-256`, `Stripe-Signature`) are none: they prove this one body and let nobody in, and a
 * receiver may want to check them again.
 */

/** What the names of credential headers have in common, wherever it stands in the name ... */
const ANYWHERE = /authori[sz]|authentication|secret|passw|passphrase|credential|cookie|jwt|assertion|session/;
/** ... or at its end: `X-Token-Count`, `X-Api-Key-Id` and `X-Auth-User` hold none, `X-Idempotency-Key` is another kind of key. */
const AT_THE_END =
  /(?:token|auth|bearer|[-_]otp|[-_]pass|[-_]pwd|(?:access|account|admin|api|app|application|auth|client|consumer|customer|developer|encryption|functions?|insert|licen[cs]e|master|private|query|root|sas|service|shared|signing|subscription)[-_]?key)$/;
/** Credentials whose names do not tell. */
const OTHERS: ReadonlySet<string> = new Set(["dpop", "x-amzn-oidc-data", "x-gotify-key", "x-honeycomb-team", "x-wsse"]);

/**
 * Whether a header of this name carries a credential by what it is called.
 *
 * @param name in lower case
 */
export function isCredentialHeader(name: string): boolean {
  return ANYWHERE.test(name) || AT_THE_END.test(name) || OTHERS.has(name);
}

/**
 * Which headers of an HTTP source are neither stored nor shown to a transform.
 *
 * @param further names in any letter case: those of the source's own `auth` block, and `inbox.credentialHeaders`
 * @returns tells it by a name in lower case
 */
export function credentialHeaders(further: readonly string[]): (name: string) => boolean {
  const names = new Set(further.map((name) => name.toLowerCase()));
  return (name) => names.has(name) || isCredentialHeader(name);
}
