import { createHmac } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import type { InboundAuth } from "../../../../src/adapters/sources/http/schema.ts";
import { httpPlan } from "../../../../src/core/receipt/attributes.ts";
import { Secret } from "../../../../src/model/secret.ts";
import { failOnLeaks } from "../../../support/leaks.ts";
import { postHead, RawClient, startHttp } from "../harness.ts";
import { SENDERS, type Sender, type Sent } from "./senders.ts";
import { authOf, startSource } from "./source.ts";

/** What is verified is what is parsed, keyed, stored and delivered. */

failOnLeaks();

async function start(name: string, sign?: (secret: string, ms: number) => Sent) {
  const sender = SENDERS.find((each) => each.name === name);
  if (sender === undefined) throw new Error(`no sender ${name}`);
  const key = sender.newKey();
  const http = await startSource(authOf(sender, key.secret));
  const sent = sign?.(String(key.signing), http.clock.ms) ?? sender.send(key.signing, http.clock.ms);
  return Object.assign(http, { sender, key, sent });
}

/** A request with a piece of its body replaced, which must be there. */
function replaced(sent: Sent, from: string, to: string): Sent {
  const text = sent.body.toString();
  if (!text.includes(from)) throw new Error(`${from} is not in ${text}`);
  return { ...sent, body: Buffer.from(text.replace(from, to)) };
}

const typed = (sent: Sent, type: string): Sent => ({
  ...sent,
  headers: {
    ...Object.fromEntries(Object.entries(sent.headers).filter(([name]) => !/^content-type$/i.test(name))),
    "content-type": type,
  },
});

describe("a value of the body that is signed", () => {
  const PSP = '"pspReference":"7914073381342284"';

  test.each([
    ["a number that a double cannot tell from the text", PSP, '"pspReference":7914073381342284.1'],
    ["the same number", PSP, '"pspReference":7914073381342284'],
    ["a list of the text", PSP, '"pspReference":["7914073381342284"]'],
    ["a boolean", '"success":"true"', '"success":true'],
    ["a text for a number", '"value":1130', '"value":"1130"'],
    ["a number with a fraction", '"value":1130', '"value":1130.0'],
    ["a number with an exponent", '"value":1130', '"value":1.13e3'],
    ["a number with digits that a double loses", '"value":1130', '"value":1130.00000000000000000001'],
    ["an object that looks like a parsed number", '"value":1130', '"value":{"isLosslessNumber":true,"value":"1130"}'],
    ["a signature that is not text", '"hmacSignature":"', '"hmacSignature":1,"other":"'],
  ])("is only what the sender writes: Adyen with %s", async (_, from, to) => {
    await using http = await start("adyen");
    expect((await http.deliver(replaced(http.sent, from, to))).status).toBe(401);
    expect(http.store.rows).toEqual([]);
    expect((await http.deliver(http.sent)).status).toBe(202);
  });

  test("has no colon but in the merchant's own reference: Adyen's fields cannot be cut elsewhere", async () => {
    const item = (fields: readonly (string | number)[]) => {
      const [pspReference, originalReference, merchantAccountCode, merchantReference, value, currency] = fields;
      const [, , , , , , eventCode, success] = fields;
      const references = { pspReference, originalReference, merchantAccountCode, merchantReference };
      return { ...references, amount: { value, currency }, eventCode, success };
    };
    const bodyOf = (fields: readonly (string | number)[], hmacSignature: string) =>
      JSON.stringify({
        notificationItems: [{ NotificationRequestItem: { additionalData: { hmacSignature }, ...item(fields) } }],
      });
    const fields = ["psp", "", "Shop", "order:1", 5, "EUR", "CAPTURE", "true"];
    const signatureOf = (secret: string) =>
      createHmac("sha256", Buffer.from(secret, "hex")).update(fields.join(":")).digest("base64");
    await using http = await start("adyen", (secret) => ({
      headers: { "content-type": "application/json" },
      body: Buffer.from(bodyOf(fields, signatureOf(secret))),
    }));
    const moved = ["psp:", "Shop", "order", "1", 5, "EUR", "CAPTURE", "true"];
    const forged = Buffer.from(bodyOf(moved, signatureOf(String(http.key.signing))));
    expect((await http.deliver({ ...http.sent, body: forged })).status).toBe(401);
    expect((await http.deliver(http.sent)).status).toBe(202);
    expect(http.store.rows).toMatchObject([{ idempotencyKey: "joined:CAPTURE:psp" }]);
  });

  test("is not a piece of a signed document: Adyen signs those of platforms with the same key", async () => {
    const platform =
      '{"data":{"balancePlatform":"P","id":"1"},"timestamp":"2024-12-15T15:42:03+01:00","type":"balancePlatform.x"}';
    const pieces = platform.split(":");
    const [value, currency, eventCode, success] = pieces.slice(-4);
    const [pspReference, originalReference, merchantAccountCode, ...rest] = pieces.slice(0, -4);
    const references = { pspReference, originalReference, merchantAccountCode, merchantReference: rest.join(":") };
    await using http = await start("adyen", (secret) => {
      const hmacSignature = createHmac("sha256", Buffer.from(secret, "hex")).update(platform).digest("base64");
      const amount = { value: Number(value), currency };
      const item = { additionalData: { hmacSignature }, ...references, amount, eventCode, success };
      const body = JSON.stringify({ notificationItems: [{ NotificationRequestItem: item }] });
      return { headers: { "content-type": "application/json" }, body: Buffer.from(body) };
    });
    expect((await http.deliver(http.sent)).status).toBe(401);
    const [, HmacSignature = ""] = /"hmacSignature":"([^"]+)"/.exec(http.sent.body.toString()) ?? [];
    const real = { headers: { HmacSignature }, body: Buffer.from(platform) };
    expect((await http.deliver(real)).status).toBe(202);
  });

  test("is text: Mailgun's token, Microsoft Graph's clientState", async () => {
    const number = "8515131751004933";
    await using mailgun = await start("mailgun", (secret, ms) => {
      const timestamp = String(Math.floor(ms / 1000));
      const signature = createHmac("sha256", secret)
        .update(timestamp + number)
        .digest("hex");
      const body = JSON.stringify({ signature: { token: number, timestamp, signature }, "event-data": { event: "e" } });
      return { headers: { "content-type": "application/json" }, body: Buffer.from(body) };
    });
    for (const token of [`${number}.1`, `${number}.2`, number])
      expect((await mailgun.deliver(replaced(mailgun.sent, `"${number}"`, token))).status).toBe(401);
    expect((await mailgun.deliver(mailgun.sent)).status).toBe(202);

    const graph = SENDERS.find(({ name }) => name === "microsoft-graph") as Sender;
    await using http = await startSource(authOf(graph, number));
    const sent = graph.send(number, http.clock.ms);
    for (const state of [number, `${number}.1`]) {
      const body = Buffer.from(sent.body.toString().replaceAll(`"${number}"`, state));
      expect((await http.deliver({ ...sent, body })).status).toBe(401);
    }
    expect((await http.deliver(sent)).status).toBe(202);
  });
});

describe("a signed document that is read in two ways is refused:", () => {
  test.each([
    ["adyen", '"success":"true"', '"success":"false","success":"true"'],
    ["adyen", '"success":"true"', '"\\u0073uccess":"false","success":"true"'],
    ["adyen", '"success":"true"', '"success":"true","success":"true"'],
    ["adyen", '"live":"false"', '"live":{},"live":[]'],
    ["adyen", '"live":"false"', '"__proto__":1,"__proto__":2'],
    ["adyen", '"live":"false"', '"a":"\\\\\\":{","a":1'],
    ["adyen", '{"live"', '{"notificationItems":[],"live"'],
    ["mailgun", '"signature":{', '"signature":{"token":"mine"},"signature":{'],
    ["mailgun", '"event-data":{', '"event-data":{"event":"other"},"event-data":{'],
    ["microsoft-graph", '"value":', '"value":[{"clientState":"x"}],"value":'],
    ["microsoft-graph", '"changeType":', '"clientState":"x","changeType":'],
  ])("%s names a member twice, %s -> %s", async (name, from, to) => {
    await using http = await start(name);
    const response = await http.deliver(replaced(http.sent, from, to));
    expect([response.status, await response.json()]).toEqual([
      401,
      { error: "the body is not JSON whose objects name each member once, and so has no signature" },
    ]);
    expect(http.store.rows).toEqual([]);
  });

  test.each(["adyen", "mailgun", "microsoft-graph"])("%s in an encoding that is not UTF-8", async (name) => {
    await using http = await start(name);
    const text = http.sent.body.toString();
    const latin1 = Buffer.from(text.replace("{", '{"\xe9":"\xe9",'), "latin1");
    for (const body of [latin1, Buffer.from(`\ufeff${text}`, "utf16le")])
      expect((await http.deliver({ ...http.sent, body })).status).toBe(401);
    const deep = Buffer.from(text.replace("{", `{"deep":${"[".repeat(50_000)}${"]".repeat(50_000)},`));
    expect((await http.deliver({ ...http.sent, body: deep })).status).toBe(401);
    // Names of different objects, and texts that look like members, are no repetition.
    const fine = Buffer.from(text.replace("{", '{"a":{"a":{"x":"\\"a\\":1,:"},"b":[{"a":":"},{"a":1e2}]},'));
    expect((await http.deliver({ ...http.sent, body: fine })).status).toBe(202);
  });
});

describe("a content type that is not signed", () => {
  const HMAC = {
    kind: "hmac",
    secrets: [new Secret("key")],
    headerName: "X-Signature",
    algorithm: "HmacSHA256",
    encoding: "hex",
    signaturePrefix: "",
    timestampUnit: "ms",
    timestampTolerance: 300_000,
    signaturePayloadFormat: "BODY",
  } as const satisfies InboundAuth;
  const signature = (text: string) => ({ "X-Signature": createHmac("sha256", "key").update(text).digest("hex") });

  test("makes no other event of a recorded one", async () => {
    const route = { cloudEvents: true, auth: HMAC };
    await using http = await startHttp({ route, attributes: httpPlan({ cloudEvents: true }) });
    const event = { specversion: "1.0", id: "e-1", source: "/s", type: "paid", data: { n: 1 } };
    const body = JSON.stringify(event);
    const headers = { ...signature(body), "Content-Type": "application/cloudevents+json" };
    expect((await http.post(body, headers)).status).toBe(202);
    const mine = { "ce-specversion": "1.0", "ce-id": "e-2", "ce-source": "/s", "ce-type": "refunded" };
    const binary = await http.post(body, { ...headers, ...mine, "Content-Type": "application/json" });
    expect(await binary.json()).toEqual({ status: "duplicate" });
    expect(http.store.rows).toMatchObject([{ idempotencyKey: "e-1", eventType: "paid", payload: '{"n":1}' }]);
  });

  test("is not stored, since a receiver would read the body by it", async () => {
    await using http = await startHttp({ route: { auth: HMAC } });
    const body = '{"id":1}';
    await http.post(body, { ...signature(body), "Content-Type": "application/json; charset=utf-16" });
    await using github = await start("github");
    await github.deliver(typed(github.sent, "text/html; charset=shift_jis"));
    for (const { store } of [http, github]) {
      expect(store.rows).toHaveLength(1);
      expect(Object.keys(store.rows[0]?.headers ?? {}).map((name) => name.toLowerCase())).not.toContain("content-type");
    }
  });

  test("does not make a form of Twilio's JSON, nor of JSON with a byte order mark", async () => {
    const twilio = SENDERS.find(({ name }) => name === "twilio") as Sender;
    const { signing, secret } = twilio.newKey();
    await using http = await startSource(authOf(twilio, secret));
    const json = Buffer.from('{"MessageStatus":"sent"}');
    const digest = "0".repeat(64);
    const query = `?bodySHA256=${digest}`;
    const url = `${twilio.settings?.url}${query}`;
    const headers = {
      "X-Twilio-Signature": createHmac("sha1", String(signing)).update(url).digest("base64"),
      "content-type": "application/x-www-form-urlencoded",
    };
    // The signature of a JSON request covers its URL alone, as that of a form without fields would.
    for (const body of [json, Buffer.from(""), Buffer.from("&")])
      expect((await http.deliver({ headers, body, query })).status).toBe(401);
    // Nor would that of its URL, cut in two.
    for (let at = 1; at < query.length - 1; at++) {
      const form = new URLSearchParams([[query.slice(at, at + 1), query.slice(at + 1)]]);
      const sent = { headers, body: Buffer.from(form.toString()), query: query.slice(0, at) };
      expect([at, (await http.deliver(sent)).status]).toEqual([at, 401]);
    }
    expect(http.store.rows).toEqual([]);

    await using slack = await start("slack");
    const sent = slack.sender.send(slack.key.signing, slack.clock.ms, '\ufeff{"event_id":"Ev1","event":{"type":"m"}}');
    expect((await slack.deliver(typed(sent, "application/json"))).status).toBe(202);
    const form = await slack.deliver(typed(sent, "application/x-www-form-urlencoded"));
    expect(await form.json()).toEqual({ status: "duplicate" });
  });

  test("decides again where signedText has it, as the sender wrote it and once", async () => {
    const auth = { ...HMAC, signedText: "{{ headers.Content-Type }}|{{ body }}" } as const;
    await using http = await startHttp({ route: { auth } });
    const type = "application/x-ndjson";
    const body = '{"id":"a"}\n{"id":"b"}';
    const signed = signature(`${type}|${body}`);
    expect((await http.post(body, { ...signed, "Content-Type": "application/json" })).status).toBe(401);
    expect((await http.post(body, { ...signed, "Content-Type": type })).status).toBe(202);
    expect(http.store.rows.map(({ idempotencyKey }) => idempotencyKey)).toEqual(["a", "b"]);

    const single = '{"id":"c"}';
    using client = new RawClient(http.data.port);
    const twice = [
      `Content-Type: ${type}`,
      "Content-Type: text/html",
      `X-Signature: ${signature(`${type}|${single}`)["X-Signature"]}`,
    ];
    client.send(postHead([...twice, `Content-Length: ${single.length}`]) + single);
    expect(await client.until("is wrong")).toContain("HTTP/1.1 401");
  });
});

describe("the headers of Standard Webhooks and those of Svix", () => {
  const NAMES = ["id", "timestamp", "signature"];

  test.each(["standard-webhooks", "svix"])("are two sets, and never make one together: %s", async (name) => {
    await using http = await start(name);
    const [own, other] = name === "svix" ? ["svix", "webhook"] : ["webhook", "svix"];
    const sentValue = (part: string) => http.sent.headers[`${own}-${part}`] ?? "";
    // Each header under either name: only those of one family make a signature.
    for (let mix = 1; mix < 7; mix++) {
      const headers = Object.fromEntries(
        NAMES.map((part, bit) => [`${(mix >> bit) & 1 ? other : own}-${part}`, sentValue(part)]),
      );
      expect([mix, (await http.deliver({ ...http.sent, headers })).status]).toEqual([mix, 401]);
    }
    expect((await http.deliver(http.sent)).status).toBe(202);
    expect(http.store.rows).toMatchObject([{ idempotencyKey: "msg_1" }]);
  });
});
