import type { Headers } from "../../model/rows.ts";
import { compileTopicPattern } from "../../model/topicPattern.ts";
import { findHeader } from "./attributes.ts";

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
export type HeaderFilter = (headers: Headers) => boolean;

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
