import { describe, expect, test } from "@jest/globals";
import { compileTopicPattern } from "../../../../src/core/delivery/topicPattern.ts";

describe("a topic pattern", () => {
  test.each([
    ["orders.created", "orders.created"],
    ["orders.*", "orders.created"],
    ["orders.*", "orders.a-b_c d"],
    ["*", "orders"],
    ["*.created", "orders.created"],
    ["*.*", "a.b"],
    ["orders.*.v1", "orders.created.v1"],
    ["order-*", "order-42"],
    ["a*b*c", "axbbxc"],
    ["**", ""],
    ["**", "a.b\nc"],
    ["orders.**", "orders."],
    ["orders.**", "orders.a.b.c"],
    ["**.audit", ".audit"],
    ["**.audit", "a.b.audit"],
    ["a.**.z", "a..z"],
    ["a.**.z", "a.b.z.z"],
    ["**.*.end", "x.y.end"],
    ["**.*", "a.b"],
    ["*.**", "a."],
    ["a+(b)?[c]\\d^$|{2}", "a+(b)?[c]\\d^$|{2}"],
    ["größe.*", "größe.日本"],
    ["", ""],
  ])("%j matches %j", (pattern, topic) => {
    expect(compileTopicPattern(pattern)(topic)).toBe(true);
  });

  test.each([
    ["orders.created", "orders.created.v1"],
    ["orders.created", "Orders.created"],
    ["orders.*", "orders."],
    ["orders.*", "orders"],
    ["orders.*", "orders.created.v1"],
    ["orders.*", "my.orders.created"],
    ["order-*", "order-"],
    ["*", ""],
    ["*", "a.b"],
    ["*.*", "a."],
    ["a*b*c", "ab.bc"],
    ["orders.*.v1", "orders.a.b.v1"],
    ["**.audit", "audit"],
    ["a.**.z", "a.z"],
    ["orders.**", "orders"],
    ["a.c", "abc"],
    ["", "a"],
  ])("%j does not match %j", (pattern, topic) => {
    expect(compileTopicPattern(pattern)(topic)).toBe(false);
  });

  test.each(["***", "orders.***", "****", "a***b"])("%s is refused", (pattern) => {
    expect(() => compileTopicPattern(pattern)).toThrow("use * for one segment without a dot or ** for any text");
  });

  test("agrees with a regular expression on every short topic", () => {
    const texts = (alphabet: string, length: number): string[] =>
      length === 0 ? [""] : [...texts(alphabet, length - 1).flatMap((t) => [t, ...[...alphabet].map((c) => t + c)])];
    const topics = [...new Set(texts("ab.", 5))];
    for (const pattern of new Set(texts("a.*", 5))) {
      if (pattern.includes("***")) continue;
      const source = pattern.replace(/\*\*|\*|\./g, (part) => (part === "**" ? ".*" : part === "*" ? "[^.]+" : "\\."));
      const expected = new RegExp(`^${source}$`, "s");
      const matches = compileTopicPattern(pattern);
      const wrong = topics.filter((topic) => matches(topic) !== expected.test(topic));
      expect({ pattern, wrong }).toEqual({ pattern, wrong: [] });
    }
  });

  test("takes time in proportion to the topic where a regular expression would backtrack for hours", () => {
    const matches = compileTopicPattern(`${"*a".repeat(20)}**b**a${"*a".repeat(20)}c`);
    const started = performance.now();
    expect(matches("a".repeat(20_000))).toBe(false);
    expect(performance.now() - started).toBeLessThan(30_000);
  });
});
