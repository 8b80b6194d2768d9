import { describe, expect, test } from "@jest/globals";
import { headerValue } from "../../../../../src/adapters/destinations/http/auth.ts";
import { requestHeaders } from "../../../../../src/adapters/destinations/http/delivery.ts";
import { requestUrl } from "../../../../../src/adapters/destinations/http/kind.ts";

describe("request headers", () => {
  test("keep their names", () => {
    expect(requestHeaders({ "X-Tenant": "blue", traceparent: "00-1" }, [])).toEqual([
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
    expect(requestHeaders(headers, [])).toEqual(["x-kept", "2"]);
  });

  test("of the destination's auth win over one of the message in any letter case", () => {
    const auth = { name: "authorization", value: "Bearer t" };
    expect(requestHeaders({ Authorization: "row", "x-a": "1" }, [auth])).toEqual([
      "x-a",
      "1",
      "authorization",
      "Bearer t",
    ]);
  });

  test("pass an authorization of the message on when the destination has none", () => {
    expect(requestHeaders({ Authorization: "row" }, [])).toEqual(["Authorization", "row"]);
  });

  test.each([
    ["a b", "a%20b"],
    ["a:b", "a%3Ab"],
    ["a\r\nb", "a%0D%0Ab"],
    ["größe", "gr%C3%B6%C3%9Fe"],
    ["a\u0000", "a%00"],
  ])("with the name %j go under the name %s", (name, sent) => {
    expect(requestHeaders({ [name]: "1" }, [])).toEqual([sent, "1"]);
  });

  test("without a name stay behind", () => {
    expect(requestHeaders({ "": "1", "x-a": "2" }, [])).toEqual(["x-a", "2"]);
  });

  test.each([
    ["a\r\nx-injected: 1", "UTF-8''a%0D%0Ax-injected%3A%201"],
    ["é\n", "UTF-8''%C3%A9%0A"],
    ["a\u0000", "UTF-8''a%00"],
    ["\u007f", "UTF-8''%7F"],
  ])("with the value %j go as %s", (value, sent) => {
    expect(requestHeaders({ "x-a": value }, [])).toEqual(["x-a", sent]);
  });
});

describe("the idempotency key", () => {
  const sentKey = (key: string) => requestHeaders({ "X-Idempotency-Key": key }, [])[1];

  test.each(["order-1", "a b", "50%25", "a%0Ab", "utf-8''a", "a\tb"])("%j goes unchanged", (key) => {
    expect(sentKey(key)).toBe(key);
  });

  test("is never the same text for two keys, also when the receiver takes blanks off", () => {
    const keys = [
      "a",
      " a",
      "a ",
      "\ta",
      "a\n",
      "a%0A",
      "UTF-8''a%0A",
      "UTF-8''a",
      "UTF-8''UTF-8''a",
      "é",
      "\u00c3\u00a9",
      "a\r\n",
    ];
    expect(new Set(keys.map((key) => sentKey(key)?.trim())).size).toBe(keys.length);
  });

  test("goes over HTTP whatever it holds", () => {
    for (let code = 0; code < 0x180; code += 1) {
      expect(sentKey(`a${String.fromCharCode(code)}b`)).toMatch(/^[\t\x20-\x7e\x80-\xff]*$/);
    }
  });
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

describe("the URL of the request", () => {
  test.each([
    ["http://h", "/", "http://h/"],
    ["http://h/", "/", "http://h/"],
    ["http://h", "/a/b", "http://h/a/b"],
    ["http://h/", "a", "http://h/a"],
    ["http://h/base", "/", "http://h/base"],
    ["http://h/base/", "/", "http://h/base/"],
    ["http://h/base", "/a/", "http://h/base/a/"],
    ["http://h/base/", "/a", "http://h/base/a"],
    ["http://h/base?k=v", "/", "http://h/base?k=v"],
    ["http://h/base?k=v", "/a?x=1?2", "http://h/base/a?k=v&x=1?2"],
    ["http://h/base#part", "/a b#c", "http://h/base/a%20b%23c"],
    ["https://h:8443", "", "https://h:8443/"],
  ])("of %s and %s is %s", (baseUrl, path, url) => {
    expect(requestUrl(baseUrl, path).href).toBe(url);
  });
});
