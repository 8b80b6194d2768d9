import { createHmac } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import type { InboundAuth } from "../../../src/adapters/sources/http/schema.ts";
import { httpPlan } from "../../../src/core/receipt/attributes.ts";
import { createVerifier } from "../../../src/http/credentials.ts";
import { ManualClock } from "../../support/recorders.ts";
import { loadWith } from "../config/support.ts";
import { type HarnessOptions, startHttp } from "./harness.ts";

const clock = new ManualClock(1_700_000_000_000);
const BODY = '{"id":"é"}';
const digest = (text: string, algorithm = "sha256", key = "key") => createHmac(algorithm, key).update(text);

/** The `auth` block of a source as the configuration loads it. */
function load(keys: string): InboundAuth {
  const config = loadWith(`sources: { s: { path: /p, idempotencyKeyPath: $.id, topic: t, auth: { ${keys} } } }\n`);
  const source = config.sources.s;
  if (source?.kind !== "http" || source.auth === undefined) throw new Error("no auth");
  return source.auth;
}

function refusal(keys: string, headers: Record<string, string>, body = BODY, request = {}): string | null {
  return createVerifier(load(keys), clock).refusal({ headers, ...request }, Buffer.from(body));
}

describe("hmac", () => {
  test.each([
    ["HmacSHA1", "sha1"],
    ["HmacSHA256", "sha256"],
    ["HmacSHA384", "sha384"],
    ["HmacSHA512", "sha512"],
  ])("%s", (algorithm, name) => {
    const keys = `secret: key, algorithm: ${algorithm}, signaturePrefix: ''`;
    expect(refusal(keys, { "x-signature": digest(BODY, name).digest("hex") })).toBeNull();
    const other = name === "sha1" ? "sha256" : "sha1";
    expect(refusal(keys, { "x-signature": digest(BODY, other).digest("hex") })).toMatch(/ is wrong$/);
  });

  test.each(["hex", "base64", "base64url"] as const)("in %s, and in no other encoding", (encoding) => {
    const keys = `secret: key, encoding: ${encoding}, signaturePrefix: 'v='`;
    // A body whose signature has + and / in base64, and a padding.
    const body = Array.from({ length: 200 }, (_, n) => `${n}`).find((text) =>
      /\+.*\/|\/.*\+/.test(digest(text).digest("base64")),
    );
    for (const written of ["hex", "base64", "base64url"] as const) {
      const signed = { "x-signature": `v=${digest(body ?? "").digest(written)}` };
      const reason = refusal(keys, signed, body);
      if (written === encoding) expect(reason).toBeNull();
      else
        expect(reason).toMatch(
          /^the signature in the X-Signature header is wrong$|holds no (hexadecimal|base64|base64url) signature$/,
        );
    }
  });

  test.each([
    ["body", BODY],
    ["BODY", BODY],
    ["timestamp-dot-body", `${clock.now()}.${BODY}`],
    ["TIMESTAMP_DOT_BODY", `${clock.now()}.${BODY}`],
    ["timestamp-dot-request", `${clock.now()}.POST./p?b=1&a=%2F.${BODY}`],
  ])("with the signaturePayloadFormat %s signs %j", (format, signed) => {
    const keys = `secret: key, timestampHeader: X-Time, signaturePayloadFormat: ${format}`;
    const headers = { "x-time": String(clock.now()), "x-signature": `sha256=${digest(signed).digest("hex")}` };
    expect(refusal(keys, headers, BODY, { method: "POST", url: "/p?b=1&a=%2F" })).toBeNull();
    expect(refusal(keys, headers, `${BODY} `, { method: "POST", url: "/p?b=1&a=%2F" })).toMatch(/ is wrong$/);
  });

  test("time and signatures are fields of one header", () => {
    const keys = "secret: key, signatureField: v1, timestampField: t, timestampUnit: s";
    const right = digest(`1700000000.${BODY}`).digest("hex");
    const wrong = "0".repeat(64);
    for (const text of [`t=1700000000,v1=${right}`, ` v1=${wrong} , v1=${right}, t=1700000000,x,=,v0=1`]) {
      expect(refusal(keys, { "x-signature": text })).toBeNull();
    }
    expect(
      [
        `t=1700000000,v1=${wrong}`,
        `t=1700000001,v1=${right}`,
        `v1=${right}`,
        "t=1700000000",
        "",
        `t=x,v1=${right}`,
      ].map((text) => refusal(keys, { "x-signature": text })),
    ).toEqual([
      "the signature in the X-Signature header is wrong",
      "the signature in the X-Signature header is wrong",
      "the X-Signature header has no t field",
      "the X-Signature header has no v1 field",
      "the X-Signature header has no v1 field",
      "the t field of the X-Signature header is not a time in Unix seconds",
    ]);
    expect(refusal(keys, { "x-signature": `t=1700000000${`,v1=${wrong}`.repeat(11)}` })).toBe(
      "the X-Signature header has more than 10 signatures",
    );
  });

  test("signedText puts together what is signed", () => {
    const template = "{{method}} {{ url }} {{ path }} {{ headers.X-Id }}|{{ timestamp }}|{{ body }}\\u00e9";
    const keys = `secret: key, signaturePrefix: '', timestampHeader: X-Time, signedText: "${template}", url: "https://h.example/in"`;
    const signed = `POST https://h.example/in?a=%20b /p?a=%20b i-1|1700000000000|${BODY}é`;
    const headers = { "x-time": "1700000000000", "x-id": "i-1", "x-signature": digest(signed).digest("hex") };
    const request = { method: "POST", url: "/p?a=%20b" };
    expect(refusal(keys, headers, BODY, request)).toBeNull();
    expect(refusal(keys, headers, BODY, { ...request, method: "PUT" })).toMatch(/ is wrong$/);
    expect(refusal(keys, headers, BODY, { ...request, url: "/p?a=%20c" })).toMatch(/ is wrong$/);
    expect(refusal(keys, { ...headers, "x-id": "i-2" }, BODY, request)).toMatch(/ is wrong$/);
    const { "x-id": _id, ...without } = headers;
    expect(refusal(keys, without, BODY, request)).toBe("missing X-Id header");
  });
});

describe("two credentials at a time", () => {
  const bytes = (text: string) => Buffer.from(text).toString("latin1");

  test.each([
    ["tokens: [néw, old]", (text: string) => ({ authorization: `Bearer ${bytes(text)}` })],
    ["keys: [néw, old], headerName: X-Key", (text: string) => ({ "x-key": bytes(text) })],
    [
      "secrets: [néw, old]",
      (text: string) => ({ "x-signature": `sha256=${digest(BODY, "sha256", text).digest("hex")}` }),
    ],
  ])("%s: both pass, and nothing else", (keys, headers) => {
    expect(refusal(keys, headers("néw"))).toBeNull();
    expect(refusal(keys, headers("old"))).toBeNull();
    for (const other of ["new", "néw,old", "néw, old", "o", ""])
      expect(refusal(keys, headers(other))).toMatch(/ is wrong$/);
  });

  test("a list of one passes alone", () => {
    expect(refusal("tokens: [t]", { authorization: "Bearer t" })).toBeNull();
    expect(refusal("tokens: [t]", { authorization: "Bearer u" })).not.toBeNull();
  });
});

describe("a CloudEvent in binary mode", () => {
  const event = { "ce-specversion": "1.0", "ce-id": "e-1", "ce-source": "/s", "ce-type": "t" };
  const sign = (text: string) => ({ "X-Signature": `sha256=${digest(text).digest("hex")}` });
  const start = (keys: string, filter?: HarnessOptions["filter"]) =>
    startHttp({ route: { cloudEvents: true, auth: load(keys) }, attributes: httpPlan({ cloudEvents: true }), filter });

  test("is taken only if its content type is signed, and as another event unless its attributes are", async () => {
    await using bodyOnly = await start("secret: key");
    expect((await bodyOnly.post(BODY, { ...event, ...sign(BODY) })).status).toBe(400);

    const typeOnly = await start('secret: key, signedText: "{{ headers.content-type }}{{ body }}"');
    const type = { "Content-Type": "application/json" };
    const ofType = { ...event, ...type, ...sign(`application/json${BODY}`) };
    expect((await typeOnly.post(BODY, ofType)).status).toBe(202);
    expect((await typeOnly.post(BODY, { ...ofType, "ce-id": "e-2" })).status).toBe(202);
    await typeOnly.stop();

    const names = ["ce-id", "ce-source", "ce-type"] as const;
    // As YAML writes a line break, which no header can hold.
    const signed = ["Content-Type", ...names].map((name) => `{{ headers.${name} }}`);
    const template = [...signed, "{{ body }}"].join("\\n");
    await using whole = await start(`secret: key, signedText: "${template}"`);
    const texts = [type["Content-Type"], ...names.map((name) => event[name]), BODY];
    const ofAll = { ...event, ...type, ...sign(texts.join("\n")) };
    expect((await whole.post(BODY, ofAll)).status).toBe(202);
    for (const name of names) expect((await whole.post(BODY, { ...ofAll, [name]: "x" })).status).toBe(401);
    // The forms of other bindings are not signed.
    for (const name of ["ce_id", "cloudEvents_id"]) {
      expect(await (await whole.post(BODY, { ...ofAll, [name]: "e-2" })).json()).toEqual({ status: "duplicate" });
    }
    expect(whole.store.rows.map(({ idempotencyKey }) => idempotencyKey)).toEqual(["e-1"]);
  });
});
