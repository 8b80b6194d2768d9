import { createHmac } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import type { HmacAuth, InboundAuth } from "../../../src/adapters/sources/http/schema.ts";
import { createVerifier } from "../../../src/http/credentials.ts";
import { Secret } from "../../../src/model/secret.ts";
import { ManualClock } from "../../support/recorders.ts";

const clock = new ManualClock(1_700_000_000_000);
const BODY = Buffer.from('{"id":"é"}');
const bytesOf = (text: string) => Buffer.from(text).toString("latin1");

function refusal(auth: InboundAuth, headers: Record<string, string>, body = BODY): string | null {
  return createVerifier(auth, clock).refusal({ headers }, body);
}

describe("a bearer token", () => {
  const auth = { kind: "bearer", token: new Secret("s3crét") } as const;

  test.each([
    [{}, "missing Authorization header"],
    [{ authorization: "Basic czNjcsOpdA==" }, "the Authorization header has no Bearer token"],
    [{ authorization: "Bearer" }, "the Authorization header has no Bearer token"],
    [{ authorization: "Bearer s3cret" }, "the Bearer token is wrong"],
    [{ authorization: `Bearer ${bytesOf("S3CRÉT")}` }, "the Bearer token is wrong"],
    [{ authorization: `Bearer ${bytesOf("s3crét")}x` }, "the Bearer token is wrong"],
  ])("is refused in %j, and the reason names the check", (headers, reason) => {
    expect(refusal(auth, headers as Record<string, string>)).toBe(reason);
  });
});

describe("an API key", () => {
  const auth = { kind: "api-key", key: new Secret("k-1"), headerName: "X-Shop-Key" } as const;

  test.each([
    [{}, "missing X-Shop-Key header"],
    [{ "x-api-key": "k-1" }, "missing X-Shop-Key header"],
    [{ "x-shop-key": "" }, "the API key in the X-Shop-Key header is wrong"],
    [{ "x-shop-key": "k-1, k-1" }, "the API key in the X-Shop-Key header is wrong"],
  ])("is refused in %j", (headers, reason) => {
    expect(refusal(auth, headers as Record<string, string>)).toBe(reason);
  });
});

describe("an HMAC signature", () => {
  const base: HmacAuth = {
    kind: "hmac",
    signaturePayloadFormat: "BODY",
    secret: new Secret("key"),
    headerName: "X-Signature",
    algorithm: "HmacSHA256",
    signaturePrefix: "sha256=",
    encoding: "hex",
    timestampUnit: "ms",
    timestampTolerance: 300_000,
  };
  const sign = (signed: Buffer | string, digest = "sha256") => createHmac(digest, "key").update(signed).digest("hex");
  const withTime: HmacAuth = { ...base, timestampHeader: "X-Time", signaturePayloadFormat: "TIMESTAMP_DOT_BODY" };
  const timed = (time: string, prefix = "sha256=") => ({
    "x-time": time,
    "x-signature": `${prefix}${sign(Buffer.concat([Buffer.from(`${time}.`), BODY]))}`,
  });

  test("agrees with the published vector of RFC 4231, test case 2", () => {
    const auth = { ...base, secret: new Secret("Jefe"), signaturePrefix: "" };
    const body = Buffer.from("what do ya want for nothing?");
    const sha256 = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
    const sha512 =
      "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737";
    expect(refusal(auth, { "x-signature": sha256 }, body)).toBeNull();
    expect(refusal({ ...auth, algorithm: "HmacSHA512" }, { "x-signature": sha512 }, body)).toBeNull();
  });

  test.each([
    [{}, "missing X-Signature header"],
    [{ "x-signature": sign(BODY) }, 'the X-Signature header does not begin with "sha256="'],
    [{ "x-signature": "sha256=" }, "the X-Signature header holds no hexadecimal signature"],
    [{ "x-signature": "sha256=zz" }, "the X-Signature header holds no hexadecimal signature"],
    [{ "x-signature": `sha256=${sign(BODY).slice(2)}` }, "the signature in the X-Signature header is wrong"],
    [{ "x-signature": `sha256=${sign("other")}` }, "the signature in the X-Signature header is wrong"],
    [{ "x-signature": `sha256=${sign(BODY, "sha512")}` }, "the signature in the X-Signature header is wrong"],
  ])("is refused in %j", (headers, reason) => {
    expect(refusal(base, headers as Record<string, string>)).toBe(reason);
  });

  test.each(["", "soon", "1e12", "-5", "1700000000000.5", "9".repeat(30)])("is refused with the time %j", (time) => {
    expect(refusal(withTime, timed(time))).toBe("the X-Time header is not a time in Unix milliseconds");
  });
});
