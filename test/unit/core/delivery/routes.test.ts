import { describe, expect, jest, test } from "@jest/globals";
import { compileDestinationOf, compileRoutes, compileRouting } from "../../../../src/core/delivery/routing.ts";
import { compileTopicPattern, mayMatch } from "../../../../src/model/topicPattern.ts";

const route = (topicPattern: string, destination: string) => ({ topicPattern, destination });

describe("routes", () => {
  test("the first that matches wins, again when the topic comes again", () => {
    const routes = compileRoutes([route("orders.created", "exact"), route("orders.*", "orders"), route("**", "rest")]);
    for (let round = 0; round < 2; round++) {
      expect(routes.match("orders.created")?.destination).toBe("exact");
      expect(routes.match("orders.paid")?.destination).toBe("orders");
      expect(routes.match("orders.paid.v1")?.destination).toBe("rest");
    }
  });

  test("a topic that none matches has no route, again when it comes again", () => {
    const routes = compileRoutes([route("orders.*", "orders")]);
    expect(routes.match("invoices.paid")).toBeUndefined();
    expect(routes.match("invoices.paid")).toBeUndefined();
    expect(compileRoutes([]).match("orders.paid")).toBeUndefined();
  });

  test("more topics than are remembered are all answered rightly", () => {
    const routes = compileRoutes([route("even.*", "even"), route("odd.*", "odd")]);
    for (let n = 0; n < 5000; n++) {
      const parity = n % 2 === 0 ? "even" : "odd";
      expect(routes.match(`${parity}.${n}`)?.destination).toBe(parity);
    }
  });

  test("a bad pattern is refused", () => {
    expect(() => compileRoutes([route("a.***", "x")])).toThrow("***");
  });
});

describe("the hash of routes", () => {
  const hash = (...routes: ReturnType<typeof route>[]) => compileRouting(routes).hash;

  test("is that of their patterns and destinations in order, and of nothing else", () => {
    const [orders, rest] = [route("orders.*", "orders"), route("**", "rest")];
    expect(hash(orders, rest)).toMatch(/^[0-9a-f]{8}$/);
    expect(hash({ ...orders, routingKeyTemplate: "k" } as typeof orders, rest)).toBe(hash(orders, rest));
    const others = [hash(rest, orders), hash(orders), hash(), hash(orders, route("**", "other"))];
    expect(new Set([hash(orders, rest), ...others]).size).toBe(5);
    expect(hash(route("a", "b,c"))).not.toBe(hash(route("a,b", "c")));
  });

  test("comes with the destination of a topic", () => {
    const { destinationOf } = compileRouting([route("orders.*", "orders")]);
    expect(["orders.paid", "bills"].map(destinationOf)).toEqual(["orders", undefined]);
  });

  test("comes with the list of a topic, which has no destination, and is another for another list", () => {
    const list = (...names: readonly string[]) => ({
      topicPattern: "orders.*",
      destinations: names.map((name) => ({ name })),
    });
    const { destinationOf, listOf } = compileRouting([list("billing", "audit"), route("**", "rest")]);
    expect(["orders.paid", "bills"].map(destinationOf)).toEqual([undefined, "rest"]);
    expect(["orders.paid", "bills"].map((topic) => listOf?.(topic))).toEqual([["billing", "audit"], undefined]);
    const hashes = [list("billing", "audit"), list("audit", "billing"), route("orders.*", "billing")].map(
      (each) => compileRouting([each]).hash,
    );
    expect(new Set(hashes).size).toBe(3);
  });
});

test("a row goes to the destination that it has, unless that is a label of other routes that is unknown here", () => {
  const find = compileDestinationOf(compileRouting([route("orders.*", "orders")]), new Set(["orders", "shop"]));
  const of = (topic: string | null, destination: string | null, isPinned = false) =>
    find({ topic, destination, isPinned });
  expect([of("orders.paid", null), of("bills", null), of(null, null)]).toEqual(["orders", undefined, undefined]);
  expect([of("orders.paid", "shop"), of("bills", "shop"), of(null, "shop")]).toEqual(["shop", "shop", "shop"]);
  expect([of("orders.paid", "gone"), of("bills", "gone")]).toEqual(["orders", undefined]);
  expect([of("orders.paid", "shop", true), of("orders.paid", "gone", true)]).toEqual(["shop", undefined]);
});

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

  test("of more than 1,000 characters is refused", () => {
    expect(compileTopicPattern("a".repeat(1000))("a".repeat(1000))).toBe(true);
    expect(() => compileTopicPattern(`${"**a".repeat(20_000)}b`)).toThrow(
      "a topic pattern of at most 1000 characters is expected; this has 60001",
    );
  });

  test.each([
    ["**", "a"],
    ["*", "a"],
    ["**", "a*a"],
  ])("of the greatest length, of %s and %s, is matched against 2,001 long topics at once", (wildcard, text) => {
    const unit = wildcard + text;
    const matches = compileTopicPattern(`${unit.repeat(Math.floor(999 / unit.length))}b`);
    const topics = Array.from({ length: 2001 }, (_, n) => `${"a".repeat(900)}${n}`);
    const before = process.cpuUsage();
    expect(topics.filter(matches)).toEqual([]);
    // One step for each character of the pattern took 10 s; this takes a third of a second.
    expect(process.cpuUsage(before).user / 1000).toBeLessThan(4000);
  });

  test("reads each character once, even if a regular expression would backtrack for hours", () => {
    const matches = compileTopicPattern(`${"*a".repeat(20)}**b**a${"*a".repeat(20)}c`);
    const topic = "a".repeat(20_000);
    const reads = jest.spyOn(String.prototype, "charCodeAt");
    try {
      expect(matches(topic)).toBe(false);
      const ofTopic = reads.mock.contexts.filter((text) => String(text) === topic);
      expect(ofTopic).toHaveLength(topic.length);
    } finally {
      reads.mockRestore();
    }
  });
});

describe("topics that are known in part", () => {
  test.each([
    ["orders.**", ["ordres.", ""]],
    ["orders.created", ["orders.created."]],
    ["orders.created", ["orders.", ".v1"]],
    ["orders.*.v1", ["orders.", ".v2"]],
    ["**.audit", ["", ".log"]],
  ])("%s matches none of %j", (pattern, parts) => {
    expect(mayMatch(pattern, parts)).toBe(false);
  });

  test.each([
    ["**", ["orders.", ""]],
    ["orders.created", ["orders.", ""]],
    ["*.v1", ["orders.", "1"]],
    ["orders.*", ["orders.created"]],
  ])("%s may match one of %j", (pattern, parts) => {
    expect(mayMatch(pattern, parts)).toBe(true);
  });
});
