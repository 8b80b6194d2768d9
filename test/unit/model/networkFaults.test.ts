import { describe, expect, test } from "@jest/globals";
import { networkFaultCode } from "../../../src/model/networkFaults.ts";

describe("what the code of a network error means", () => {
  test.each([
    ["ECONNREFUSED", "connection_refused"],
    ["ECONNRESET", "connection_lost"],
    ["EPIPE", "connection_lost"],
    ["ETIMEDOUT", "timeout"],
    ["EHOSTUNREACH", "unreachable"],
    ["ENETUNREACH", "unreachable"],
    ["EADDRNOTAVAIL", "unreachable"],
    ["ENOTFOUND", "dns"],
    ["ENODATA", "dns"],
    ["EAI_AGAIN", "dns"],
    ["EAI_FAIL", "dns"],
    ["EPROTO", "tls"],
    ["ERR_SSL_WRONG_VERSION_NUMBER", "tls"],
    ["ERR_TLS_CERT_ALTNAME_INVALID", "tls"],
    ["CERT_HAS_EXPIRED", "tls"],
    ["CRL_HAS_EXPIRED", "tls"],
    ["DEPTH_ZERO_SELF_SIGNED_CERT", "tls"],
    ["SELF_SIGNED_CERT_IN_CHAIN", "tls"],
    ["UNABLE_TO_GET_ISSUER_CERT_LOCALLY", "tls"],
    ["UNABLE_TO_DECRYPT_CERT_SIGNATURE", "tls"],
    ["UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY_OF_CERTIFICATE", "tls"],
    ["HOSTNAME_MISMATCH", "tls"],
    ["INVALID_CA", "tls"],
    ["INVALID_PURPOSE", "tls"],
  ])("%s is %s", (code, meaning) => {
    expect(networkFaultCode(code)).toBe(meaning);
  });

  test.each(["EACCES", "INVALID_CAUSE", "CERTAIN", "constructor", "", 404, null, undefined])(
    "%j is nothing of the network's",
    (code) => {
      expect(networkFaultCode(code)).toBeUndefined();
    },
  );
});
