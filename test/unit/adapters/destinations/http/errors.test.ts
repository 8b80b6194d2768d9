import { describe, expect, test } from "@jest/globals";
import { httpError, publishErrorOf, statusCode } from "../../../../../src/adapters/destinations/http/errors.ts";

describe("an error of the connection", () => {
  test.each([
    ["ECONNREFUSED", "connection_refused"],
    ["ECONNRESET", "connection_lost"],
    ["EPIPE", "connection_lost"],
    ["UND_ERR_SOCKET", "connection_lost"],
    ["UND_ERR_CONNECT_TIMEOUT", "timeout"],
    ["ETIMEDOUT", "timeout"],
    ["EHOSTUNREACH", "unreachable"],
    ["ENOTFOUND", "dns"],
    ["EAI_AGAIN", "dns"],
    ["EPROTO", "tls"],
    ["ERR_TLS_CERT_ALTNAME_INVALID", "tls"],
    ["ERR_SSL_WRONG_VERSION_NUMBER", "tls"],
    ["CERT_HAS_EXPIRED", "tls"],
    ["DEPTH_ZERO_SELF_SIGNED_CERT", "tls"],
    ["SELF_SIGNED_CERT_IN_CHAIN", "tls"],
    ["UNABLE_TO_VERIFY_LEAF_SIGNATURE", "tls"],
    ["UNABLE_TO_GET_ISSUER_CERT_LOCALLY", "tls"],
    ["UND_ERR_HEADERS_OVERFLOW", "bad_response"],
    ["UND_ERR_DESTROYED", "closed"],
    ["SOMETHING_NEW", "other"],
    ["toString", "other"],
    [undefined, "other"],
  ])("%s is %s", (code, expected) => {
    const cause = Object.assign(new Error("broke"), { code });
    const error = publishErrorOf("POST http://x/", cause);
    expect(error).toMatchObject({ code: expected, message: "POST http://x/ failed", cause });
  });

  test("that is no error at all has a code too", () => {
    expect(publishErrorOf("POST http://x/", undefined).code).toBe("other");
  });

  test("that is a publish error already stays unchanged", () => {
    const error = httpError("private_address", "no");
    expect(publishErrorOf("POST http://x/", error)).toBe(error);
  });
});

test.each([
  [300, "status_3xx"],
  [399, "status_3xx"],
  [400, "status_4xx"],
  [499, "status_4xx"],
  [500, "status_5xx"],
  [999, "status_5xx"],
])("the status %d is %s", (status, code) => {
  expect(statusCode(status)).toBe(code);
});
