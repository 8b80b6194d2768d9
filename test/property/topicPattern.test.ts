import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { compileTopicPattern, mayMatch } from "../../src/model/topicPattern.ts";
import { naivelyMatches } from "./naiveGlob.ts";
import { settings } from "./settings.ts";

/** Few characters, so that patterns and topics meet; some that mean something elsewhere. */
const CHARACTERS = ["a", "b", ".", "\n", "$", "é", "\u{1F600}"];
const patterns = fc
  .array(fc.constantFrom(...CHARACTERS, "*", "**"), { maxLength: 7 })
  .map((parts) => parts.join(""))
  .filter((pattern) => !pattern.includes("***"));
const topics = fc.array(fc.constantFrom(...CHARACTERS, "*"), { maxLength: 9 }).map((parts) => parts.join(""));

/** A pattern with a topic that was made from it, and perhaps changed in one place. */
const patternWithTopic = patterns.chain((pattern) =>
  fc
    .tuple(
      fc.array(topics, { minLength: 7, maxLength: 7 }),
      fc.option(fc.tuple(fc.nat({ max: 20 }), fc.constantFrom(...CHARACTERS, ""))),
    )
    .map(([fillings, change]) => {
      let filled = 0;
      const topic = pattern.replaceAll(/\*+/g, () => fillings[filled++]?.slice(0, 4) ?? "");
      if (change === null) return { pattern, topic };
      const [at, character] = change;
      return { pattern, topic: topic.slice(0, at) + character + topic.slice(at + 1) };
    }),
);

describe("a topic pattern", () => {
  test("matches what the naive matcher matches", () => {
    fc.assert(
      fc.property(patterns, topics, (pattern, topic) => {
        expect(compileTopicPattern(pattern)(topic)).toBe(naivelyMatches(pattern, topic));
      }),
      settings(),
    );
  });

  test("may match every topic that it matches, however little of that is known", () => {
    const parts = fc.array(topics, { minLength: 1, maxLength: 3 });
    fc.assert(
      fc.property(patterns, parts, topics, (pattern, literals, between) => {
        if (naivelyMatches(pattern, literals.join(between))) expect(mayMatch(pattern, literals)).toBe(true);
      }),
      settings(),
    );
  });

  test("behind a long text matches what the naive matcher matches", () => {
    const lengths = fc.integer({ min: 25, max: 70 });
    fc.assert(
      fc.property(patternWithTopic, lengths, fc.constantFrom("x", "."), ({ pattern, topic }, length, character) => {
        const long = character.repeat(length);
        const expected = naivelyMatches(pattern, topic);
        expect(compileTopicPattern(`*y${long}${pattern}`)(`xy${long}${topic}`)).toBe(expected);
        expect(compileTopicPattern(`${pattern}y${long}`)(`${topic}y${long}`)).toBe(expected);
      }),
      settings(),
    );
  });

  test("matches topics made from it as the naive matcher does", () => {
    let matches = 0;
    fc.assert(
      fc.property(patternWithTopic, ({ pattern, topic }) => {
        const expected = naivelyMatches(pattern, topic);
        if (expected) matches += 1;
        expect(compileTopicPattern(pattern)(topic)).toBe(expected);
      }),
      settings(),
    );
    expect(matches).toBeGreaterThan(0);
  });

  test("with three asterisks together is refused, any other is not", () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom("a", ".", "*"), maxLength: 8 }), (pattern) => {
        if (pattern.includes("***")) expect(() => compileTopicPattern(pattern)).toThrow("***");
        else compileTopicPattern(pattern);
      }),
      settings(),
    );
  });
});
