import { randomUUID } from "node:crypto";
import type { Headers } from "../../model/rows.ts";
import { compileTopicPattern } from "../delivery/routes.ts";
import { digest, findHeader } from "./attributes.ts";

/** One rule: a header name, in any letter case, and exactly one test (spec, "Header filter"). */
export interface HeaderRule {
  readonly header: string;
  readonly equals?: string | undefined;
  readonly in?: readonly string[] | undefined;
  /** A topic glob for the whole value. */
  readonly matches?: string | undefined;
  readonly exists?: boolean | undefined;
}

export interface HeaderFilterSettings {
  /** The message must match all of these. */
  readonly require?: readonly HeaderRule[] | undefined;
  /** The message must match none of these. */
  readonly exclude?: readonly HeaderRule[] | undefined;
}

/** Whether a message with these headers passes. */
type HeaderFilter = (headers: Headers) => boolean;

/**
 * @param settings the source's `filter` block; without rules everything passes
 * @throws Error that names the header of a rule without exactly one test, or with an invalid glob
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

/** Stored in a column of its own, not among the headers. */
export const CORRELATION_HEADER = "X-Correlation-Id";

const MAX_CORRELATION_ID_LENGTH = 255;
/** What a response header can hold as is: no control characters. Bytes above 0x7f are Latin-1. */
const CORRELATION_ID = /^[\x20-\x7e\x80-\xff]+$/;

/**
 * @param received what the sender gave: the header `X-Correlation-Id`, or a broker property
 * @returns the received id; a new UUID without one. An id longer than 255 characters, or with control characters or
 * characters beyond Latin-1, becomes `sha256:` and the digest of its UTF-8 text, so that whoever knows the id finds the
 * message
 */
export function correlationId(received: string | readonly string[] | undefined): string {
  if (typeof received !== "string" || received === "") return randomUUID();
  if (received.length <= MAX_CORRELATION_ID_LENGTH && CORRELATION_ID.test(received)) return received;
  return digest(Buffer.from(received));
}

/**
 * Headers that carry credentials. An HTTP source stores the received headers and forwards them to its receivers, but
 * not what authenticates the sender to this service or a proxy in front of it (spec, "POST <inbox.basePath><path>").
 * Body signatures (`X-Hub-Signature-256`, `Stripe-Signature`) are kept: they prove this one body, and a receiver may
 * want to verify them again.
 */

/** Names of credential headers contain one of these anywhere ... */
const ANYWHERE = /authori[sz]|authentication|secret|passw|passphrase|credential|cookie|jwt|assertion|session/;
/**
 * ... or end with one: `X-Token-Count`, `X-Api-Key-Id` and `X-Auth-User` hold no credential, `X-Idempotency-Key` is
 * another kind of key.
 */
const AT_THE_END =
  /(?:token|auth|bearer|[-_]otp|[-_]pass|[-_]pwd|(?:access|account|admin|api|app|application|auth|client|consumer|customer|developer|encryption|functions?|insert|licen[cs]e|master|private|query|root|sas|service|shared|signing|subscription)[-_]?key)$/;
/** Credentials whose names do not show it. */
const OTHERS: ReadonlySet<string> = new Set(["dpop", "x-amzn-oidc-data", "x-gotify-key", "x-honeycomb-team", "x-wsse"]);

/** Whether a header's name marks it as a credential. @param name in lower case */
export function isCredentialHeader(name: string): boolean {
  return ANYWHERE.test(name) || AT_THE_END.test(name) || OTHERS.has(name);
}

/**
 * Which headers an HTTP source neither stores nor passes to a transform.
 *
 * @param further names in any letter case: those of the source's own `auth` block, and `inbox.credentialHeaders`
 * @returns a predicate on the name in lower case
 */
export function credentialHeaders(further: readonly string[]): (name: string) => boolean {
  const names = new Set(further.map((name) => name.toLowerCase()));
  return (name) => names.has(name) || isCredentialHeader(name);
}
