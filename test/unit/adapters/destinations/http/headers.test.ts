import { describe, expect, test } from "@jest/globals";
import { headerValue, requestHeaders } from "../../../../../src/adapters/destinations/http/headers.ts";

describe("request headers", () => {
  test("keep the names as they are", () => {
    expect(requestHeaders({ "X-Tenant": "blue", traceparent: "00-1" }, null)).toEqual([
      "X-Tenant",
      "blue",
      "traceparent",
      "00-1",
    ]);
  });

  test("leave out what belongs to a connection or frames a message", () => {
    const names = [
      "Connection",
      "Keep-Alive",
      "Proxy-Authenticate",
      "Proxy-Authorization",
      "Proxy-Connection",
      "TE",
      "Trailer",
      "Transfer-Encoding",
      "Upgrade",
      "HTTP2-Settings",
      "Host",
      "Content-Length",
      "Content-Encoding",
      "Expect",
    ];
    const headers = Object.fromEntries([...names.map((name) => [name, "1"]), ["x-kept", "2"]]);
    expect(requestHeaders(headers, null)).toEqual(["x-kept", "2"]);
  });

  test("of the destination's auth win over one of the message in any letter case", () => {
    const auth = { name: "authorization", value: "Bearer t" };
    expect(requestHeaders({ Authorization: "row", "x-a": "1" }, auth)).toEqual([
      "x-a",
      "1",
      "authorization",
      "Bearer t",
    ]);
  });

  test("pass an authorization of the message on when the destination has none", () => {
    expect(requestHeaders({ Authorization: "row" }, null)).toEqual(["Authorization", "row"]);
  });

  test.each(["", "a b", "a:b", "a\r\nb", "größe", "a\u0000"])("with the name %j fail the publish", (name) => {
    expect(() => requestHeaders({ [name]: "1" }, null)).toThrow(
      expect.objectContaining({ code: "header_invalid", message: expect.stringContaining(JSON.stringify(name)) }),
    );
  });

  test.each(["a\r\nx-injected: 1", "a\nb", "a\u0000", "\u007f"])(
    "with the value %j fail the publish, not repeating it",
    (value) => {
      expect(() => requestHeaders({ "x-a": value }, null)).toThrow(
        expect.objectContaining({
          code: "header_invalid",
          message: expect.stringMatching(
            /^the value of the header "x-a" cannot go over HTTP: it holds the control character U\+00..$/,
          ),
        }),
      );
    },
  );
});

describe("a header value", () => {
  test("outside ASCII goes as the octets of UTF-8", () => {
    expect(Buffer.from(headerValue("x", "Grüße 日本"), "latin1").toString("utf8")).toBe("Grüße 日本");
  });

  test("may hold tabs and every printable character, or be empty", () => {
    expect(headerValue("x", 'a\t"b"; c=[d]~')).toBe('a\t"b"; c=[d]~');
    expect(headerValue("x", "")).toBe("");
  });
});
