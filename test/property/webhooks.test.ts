import { describe, expect, test } from "@jest/globals";
import { readKey } from "../../src/adapters/sources/http/keys.ts";
import { createProviderCheck, jsonOf, providerOf } from "../../src/adapters/sources/http/kind.ts";
import { PROVIDER_NAMES } from "../../src/adapters/sources/http/providers/index.ts";
import type { KeyForm } from "../../src/adapters/sources/http/scheme.ts";
import { formToJson, parseForm, parseSignedText } from "../../src/adapters/sources/http/signedText.ts";
import { httpPlan } from "../../src/core/receipt/attributes.ts";
import { JsonDocument } from "../../src/core/receipt/jsonDocument.ts";
import { splitBatch } from "../../src/core/receipt/requestBatch.ts";
import { extractAttributes } from "../support/extraction.ts";
import { seeded } from "../support/random.ts";
import { seen } from "../unit/http/harness.ts";
import { SENDERS } from "../unit/http/webhooks/senders.ts";
import { authOf, startSource } from "../unit/http/webhooks/source.ts";
import { runsOf, SEED } from "./settings.ts";

/**
 * Every parser of foreign bytes with 8,000 inputs: valid ones with pieces cut out, repeated and exchanged. It returns
 * an answer and never throws. `SVC_TEST_SEED` repeats a run; the seed is in the name of each suite.
 */

const INPUTS = runsOf(8000);
/** Of each provider over HTTP: what may become of them was tried out without it. */
const REQUESTS = runsOf(60);
const NOW = Date.UTC(2026, 0, 2);

/** What breaks parsers. */
const PIECES = [
  ..."=,;: .\"'{}[]\\/%&+-_\0\t\n\r\u007f\u0080\u00ff",
  "t=",
  "v1=",
  ",v1=",
  "v1,",
  "v1a,",
  "sha256=",
  "whsec_",
  "whpk_",
  "h1=",
  "ts=",
  "0",
  "9".repeat(20),
  "-1",
  "1e9",
  "NaN",
  "__proto__",
  "constructor",
  "null",
  "true",
  "{}",
  "[]",
  '""',
  "%00",
  "%ff",
  "%",
  "&&",
  "==",
  "{{",
  "}}",
  "{{ body }}",
  "{{ headers.X }}",
  "{{ $.a }}",
  "-----BEGIN CERTIFICATE-----\n",
  "-----BEGIN PUBLIC KEY-----\n",
  "\ud800",
  "é",
  "😀",
];

type Random = () => number;

function mutated(text: string, random: Random): string {
  let result = text;
  for (let n = Math.floor(random() * 4); n >= 0; n--) {
    const at = Math.floor(random() * (result.length + 1));
    const to = Math.min(result.length, at + Math.floor(random() * 12));
    const piece = PIECES[Math.floor(random() * PIECES.length)] ?? "";
    const middle = [piece, "", result.slice(at, to).repeat(2), result.slice(at)][Math.floor(random() * 4)] ?? "";
    result = result.slice(0, at) + middle + result.slice(to);
  }
  // A header holds at most 16 kB.
  return result.slice(0, 16_000);
}

describe(`seed ${SEED}: requests`, () => {
  // Several providers share a parser; each gets its part of the inputs.
  const shares = new Map<string, number>();
  const parserOf = ({ name }: { readonly name: string }) =>
    JSON.stringify(providerOf(name as never).schemes.map(({ at }) => Object.keys(at)));
  for (const sender of SENDERS) shares.set(parserOf(sender), (shares.get(parserOf(sender)) ?? 0) + 1);

  test.each(SENDERS.map((sender, index) => [`${sender.name}, ${index}`, sender] as const))("of %s", (_name, sender) => {
    const random = seeded(SEED);
    const { signing, secret } = sender.newKey();
    const check = createProviderCheck({ ...authOf(sender, secret, sender.newKey().secret) }, { now: () => NOW });
    const sent = sender.send(signing, NOW);
    const headers = Object.entries(sent.headers).map(([name, value]) => [name.toLowerCase(), value] as const);
    const text = sent.body.toString();
    const url = `/inbox/orders${sent.query ?? ""}`;
    expect(check.refusal({ headers: Object.fromEntries(headers), method: "POST", url }, sent.body)).toBeNull();

    const outcomes = { passed: 0, refused: 0 };
    for (let n = 0; n < INPUTS / (shares.get(parserOf(sender)) ?? 1); n++) {
      const changed = headers.map(([name, value]) => [name, random() < 0.5 ? mutated(value, random) : value] as const);
      const body = random() < 0.3 ? Buffer.from(mutated(text, random)) : sent.body;
      const target = random() < 0.1 ? mutated(url, random) : url;
      const request = {
        headers: Object.fromEntries(changed.filter(() => random() < 0.98)),
        method: "POST",
        url: target,
      };
      const refusal = check.refusal(request, random() < 0.1 ? null : body);
      if (refusal === null) outcomes.passed++;
      else outcomes.refused++;
      if (refusal !== null && (refusal === "" || refusal.length > 200 || refusal.includes(secret))) {
        throw new Error(`refused with ${JSON.stringify(refusal)}`);
      }
    }
    expect(outcomes.refused).toBeGreaterThan(outcomes.passed / 100);
    expect(outcomes.passed).toBeGreaterThan(0);
  });
});

describe(`seed ${SEED}: parsers`, () => {
  test("forms", () => {
    const random = seeded(SEED);
    for (let n = 0; n < INPUTS; n++) {
      const body = Buffer.from(mutated("payload=%7B%22a%22%3A1%7D&b=c+d&b=%C3%A9", random));
      const form = parseForm(body);
      const json = formToJson(body, random() < 0.5 ? "payload" : undefined);
      if (typeof form !== "string" && typeof json === "string") throw new Error(`${body} is a form, and gave ${json}`);
      if (typeof form !== "string" && !form.has("payload")) JSON.parse(String(json));
    }
  });

  test("bodies of several messages", () => {
    const random = seeded(SEED);
    const most = 4;
    const lines = '{"id":"1","n":1.0}\r\n\n{"id":"2"}\n["\u00e9"]\n';
    const list = '{"data":{"events":[{"id":"1","n":1.0},{"id":"2","text":"],[{\\"\\u0000"},3,null]}}';
    const kinds = new Set<string>();
    for (let n = 0; n < INPUTS; n++) {
      const isLines = n % 2 === 0;
      const body = Buffer.from(mutated(isLines ? lines : list, random));
      const form = isLines ? ({ kind: "lines" } as const) : { kind: "list" as const, names: ["data", "events"] };
      const split = splitBatch(body, form, most);
      kinds.add(`${form.kind}: ${split.kind}`);
      if (split.kind !== "messages") continue;
      const texts = split.bodies.map(String);
      if (texts.length > most) throw new Error(`${texts.length} messages of ${JSON.stringify(String(body))}`);
      if (isLines) {
        const filled = body
          .toString("latin1")
          .split("\n")
          .filter((line) => /[^ \t\r]/.test(line));
        const found = split.bodies.map((line) => line.toString("latin1"));
        if (found.join("\n") !== filled.join("\n")) throw new Error(`${JSON.stringify(String(body))} gave ${found}`);
      } else {
        const found = JSON.stringify(texts.map((text) => JSON.parse(text)));
        const events = JSON.stringify(JSON.parse(body.toString()).data.events);
        if (found !== events) throw new Error(`${JSON.stringify(String(body))} gave ${found}`);
      }
    }
    expect([...kinds].toSorted()).toEqual([
      "lines: messages",
      "lines: too_many",
      "list: invalid_json",
      "list: messages",
      "list: no_list",
      "list: too_many",
    ]);
  });

  test("templates of signed texts", () => {
    const random = seeded(SEED);
    const headers = { x: "1" };
    let parsed = 0;
    for (let n = 0; n < INPUTS; n++) {
      const template = mutated("v0:{{ timestamp }}:{{ headers.X }}{{ body }}", random);
      let signed: ReturnType<typeof parseSignedText>;
      try {
        signed = parseSignedText(template);
      } catch (error) {
        if (!(error as Error).message.includes("unknown placeholder")) throw error;
        continue;
      }
      parsed++;
      const request = { headers, method: "POST", url: "/" };
      const input = {
        request,
        body: Buffer.from("b"),
        json: undefined,
        timestamp: "1",
        url: "u",
        webhookId: undefined,
      };
      const parts = signed(input);
      if (typeof parts === "string" && !/^missing .* header$/.test(parts)) throw new Error(`${template}: ${parts}`);
    }
    expect(parsed).toBeGreaterThan(INPUTS / 10);
  });

  test("secrets", () => {
    const random = seeded(SEED);
    const forms: readonly (readonly [KeyForm, string])[] = [
      [{ standard: "whsec_ optional" }, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
      [{ standard: "whsec_ required" }, "whpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="],
      [{ hmac: "sha256", secret: "hex" }, "44782DEF547AAA06C910C43932B1EB0C"],
      [{ publicKey: "ed25519" }, "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"],
      [
        { publicKey: "ec" },
        "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEEDr2LjtURuePQzplybdC+u4CwrqDqBaWjcMMsTbhdbcwHBcepxo7yAQGhHPTnlvFYPAZFceEu/1FwCM/QmGUhA==",
      ],
      [{ publicKey: "rsa" }, "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"],
    ];
    for (let n = 0; n < INPUTS; n++) {
      const [form, valid] = forms[n % forms.length] ?? [{ token: true }, ""];
      const secret = mutated(valid, random);
      try {
        readKey(form, secret)?.verifier([Buffer.from("x")])(Buffer.from("y"));
      } catch (error) {
        const { message } = error as Error;
        if (!/^(?:expected |is a private key)/.test(message)) throw error;
        if (secret.length > 8 && message.includes(secret)) throw new Error("quotes a secret");
      }
    }
  });

  test("keys, event types and handshakes of verified bodies", () => {
    const random = seeded(SEED);
    const plans = PROVIDER_NAMES.map((name) => ({
      plan: httpPlan({}, providerOf(name)),
      ...providerOf(name).handshake,
    }));
    const bodies = SENDERS.map((sender) => sender.send(sender.newKey().signing, NOW).body.toString()).concat(
      '{"type":"url_verification","challenge":"c"}',
      '{"event":"endpoint.url_validation","payload":{"plainToken":"t"}}',
      '{"type":1}',
    );
    for (let n = 0; n < INPUTS; n++) {
      const body = Buffer.from(mutated(bodies[n % bodies.length] ?? "", random));
      const document = JsonDocument.parse(body);
      const { plan, reply, greet } = plans[n % plans.length] ?? { plan: httpPlan({}) };
      reply?.(jsonOf(body), () => "secret");
      greet?.(
        {
          method: n % 2 === 0 ? "GET" : "POST",
          isJson: n % 3 === 0,
          query: new URLSearchParams(mutated("hub.mode=subscribe", random)),
        },
        ["t"],
      );
      if (document === null) continue;
      const found = extractAttributes(plan, { body, document, headers: {} });
      if (found.kind === "extracted" ? found.attributes.idempotencyKey.length > 255 : found.reason === "") {
        throw new Error(`${JSON.stringify(String(body))} gave ${JSON.stringify(found)}`);
      }
    }
  });
});

test(`seed ${SEED}: over HTTP every answer is a status of the specification`, async () => {
  const random = seeded(SEED);
  for (const name of ["slack", "twilio", "stripe", "adyen", "microsoft-graph"]) {
    const sender = SENDERS.find((each) => each.name === name) ?? SENDERS[0];
    if (sender === undefined) throw new Error("no sender");
    const { signing, secret } = sender.newKey();
    await using http = await startSource(authOf(sender, secret));
    const sent = sender.send(signing, http.clock.ms);
    for (let n = 0; n < REQUESTS; n++) {
      const headers = Object.entries(sent.headers).map(([header, value]) => {
        const changed = random() < 0.5 ? mutated(value, random).replace(/[^\x20-\x7e]/g, "?") : value;
        return [header, changed];
      });
      const body = random() < 0.5 ? Buffer.from(mutated(sent.body.toString(), random)) : sent.body;
      const { status, body: text } = await seen(
        await http.deliver({ ...sent, headers: Object.fromEntries(headers), body }),
      );
      expect([200, 202, 400, 401]).toContain(status);
      expect(() => JSON.parse(text)).not.toThrow();
    }
    // These two sign the whole body, and have the key in it.
    if (name === "slack" || name === "stripe") expect(http.store.rows.length).toBeLessThanOrEqual(1);
  }
});
