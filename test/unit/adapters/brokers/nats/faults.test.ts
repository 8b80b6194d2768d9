import { describe, expect, test } from "@jest/globals";
import { ErrorCode, NatsError } from "nats";
import { connectFault, lossText } from "../../../../../src/adapters/brokers/nats/faults.ts";

const system = (code: string) => Object.assign(new Error(`connect ${code}`), { code });

describe("what an error of the NATS client means", () => {
  test.each<[unknown, string, RegExp]>([
    [NatsError.errorForCode(ErrorCode.Timeout), "timeout", /^a:1 did not answer within 500 ms$/],
    [
      NatsError.errorForCode(ErrorCode.ConnectionRefused, system("ECONNREFUSED")),
      "connection_refused",
      /is the server running/,
    ],
    [
      NatsError.errorForCode(ErrorCode.ConnectionRefused, new Error("undefined")),
      "connection_lost",
      /before its greeting/,
    ],
    [
      new NatsError("'Authorization Violation'", ErrorCode.AuthorizationViolation),
      "authentication",
      /^a:1 refused the login \(Authorization Violation\): check username and password, or token/,
    ],
    [new NatsError("tls", ErrorCode.ServerOptionNotAvailable), "tls", /does not offer TLS/],
    [
      new NatsError("'maximum connections exceeded'", ErrorCode.ProtocolError),
      "other",
      /^a:1: maximum connections exceeded$/,
    ],
    [system("ENOTFOUND"), "dns", /ENOTFOUND/],
    [system("EHOSTUNREACH"), "unreachable", /EHOSTUNREACH/],
    [system("ECONNRESET"), "connection_lost", /ECONNRESET/],
    [system("DEPTH_ZERO_SELF_SIGNED_CERT"), "tls", /SELF_SIGNED/],
    [system("ERR_TLS_CERT_ALTNAME_INVALID"), "tls", /ALTNAME/],
    [undefined, "other", /the connection was closed/],
  ])("%s", (error, code, message) => {
    expect(connectFault("a:1", error, 500)).toMatchObject({ code, message: expect.stringMatching(message) });
  });

  test("tells why a connection that served has ended", () => {
    expect(lossText("a:1", undefined)).toBe("a:1 closed the connection");
    const stale = new NatsError("'Stale Connection'", ErrorCode.ProtocolError);
    expect(lossText("a:1", stale)).toBe("the connection to a:1 broke: Stale Connection");
  });
});
