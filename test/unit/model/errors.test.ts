import { describe, expect, test } from "@jest/globals";
import { ConfigError, errorText } from "../../../src/model/errors.ts";

describe("the text of an error", () => {
  test("holds the code of a system error and the causes", () => {
    const cause = Object.assign(new Error("connect failed"), { code: "ECONNREFUSED" });

    expect(errorText(new Error("no database", { cause }))).toBe("no database (ECONNREFUSED connect failed)");
  });

  test("names the parts of an error without a message, as a connection attempt to several addresses gives", () => {
    const parts = [new Error("::1 refused"), new Error("127.0.0.1 refused")];

    expect(errorText(new AggregateError(parts, ""))).toBe("::1 refused; 127.0.0.1 refused");
  });

  test("comes to an end when the causes go in a circle", () => {
    const first = new Error("first");
    const second = new Error("second", { cause: first });
    first.cause = second;

    expect(errorText(first)).toMatch(/^first \(second \(first/);
    expect(errorText(first).length).toBeLessThan(100);
  });

  test.each([
    ["a text", "plain", "plain"],
    ["an object with a message", { message: "from a library" }, "from a library"],
    ["nothing", undefined, "undefined"],
    ["an error without a message", new TypeError(), "TypeError"],
  ])("can be had of %s that was thrown", (_, thrown, text) => {
    expect(errorText(thrown)).toBe(text);
  });
});

test("a configuration error lists every problem with its path", () => {
  const error = new ConfigError([
    { path: "server.httpPort", message: "found 0" },
    { path: "routes[0].destination", message: "unknown" },
  ]);

  expect(error.message).toBe(
    "the configuration has 2 problems:\n  - server.httpPort: found 0\n  - routes[0].destination: unknown",
  );
});
