import { describe, expect, test } from "@jest/globals";
import type { InboundAuth } from "../../../src/adapters/sources/http/schema.ts";
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
