import { describe, expect, test } from "@jest/globals";
import { compileRoutes } from "../../../../src/core/delivery/routes.ts";

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
