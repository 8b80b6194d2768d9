import { createHmac } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import { createProviderCheck } from "../../../../src/adapters/sources/http/kind.ts";
import { failOnLeaks } from "../../../support/leaks.ts";
import { SENDERS, type Sender, type Sent } from "./senders.ts";
import { authOf, startSource } from "./source.ts";

failOnLeaks();

function senderOf(name: string, nth = 0): Sender {
  const sender = SENDERS.filter((each) => each.name === name)[nth];
  if (sender === undefined) throw new Error(`no sender ${name}`);
  return sender;
}

async function start(sender: Sender, ...further: readonly string[]) {
  const key = sender.newKey();
  const http = await startSource(authOf(sender, key.secret, ...further));
  return Object.assign(http, { key, sent: sender.send(key.signing, http.clock.ms) });
}

const withHeaders = (sent: Sent, headers: Record<string, string>): Sent => ({
  ...sent,
  headers: { ...sent.headers, ...headers },
});

describe("Standard Webhooks", () => {
  test("a repetition under another, unsigned id is refused, whichever names the sender uses", async () => {
    await using svix = await start(senderOf("svix"));
    const again = await svix.deliver(withHeaders(svix.sent, { "svix-id": "msg_2" }));
    expect(again.status).toBe(401);
    expect((await svix.deliver(svix.sent)).status).toBe(202);
    const shadowed = await svix.deliver(withHeaders(svix.sent, { "webhook-id": "msg_2" }));
    expect(await shadowed.json()).toEqual({ status: "duplicate" });

    await using standard = await start(senderOf("standard-webhooks"));
    expect((await standard.deliver(withHeaders(standard.sent, { "svix-id": "msg_2" }))).status).toBe(401);
    expect((await standard.deliver(withHeaders(standard.sent, { "webhook-id": "msg_2" }))).status).toBe(401);
    expect(standard.store.rows).toEqual([]);
  });

  test("one right signature of several is enough; unknown versions are skipped", async () => {
    await using http = await start(senderOf("standard-webhooks"));
    const right = http.sent.headers["webhook-signature"];
    const wrong = `v1,${Buffer.alloc(32).toString("base64")}`;
    const signed = (text: string) => http.deliver(withHeaders(http.sent, { "webhook-signature": text }));
    expect((await signed(`${wrong} v2,whatever ${right}`)).status).toBe(202);
    expect((await signed(`${wrong} v1a,${right?.slice(3)} v2,${right?.slice(3)}`)).status).toBe(401);
    expect((await signed("v2,whatever")).status).toBe(401);
    expect((await signed(`${wrong} `.repeat(10) + right)).status).toBe(401);
  });

  test("a public key verifies ed25519 only, a secret HMAC only", async () => {
    const [hmac, ed25519] = [senderOf("standard-webhooks"), senderOf("standard-webhooks", 1)];
    await using http = await start(ed25519);
    // Anybody who knows the public key could make an HMAC with it.
    const publicKey = Buffer.from(http.key.secret.slice("whpk_".length), "base64");
    const forged = hmac.send(publicKey, http.clock.ms);
    expect((await http.deliver(forged)).status).toBe(401);
    expect((await http.deliver(http.sent)).status).toBe(202);
  });
});

describe("GitLab", () => {
  test("a request with a signature must have the right one, even with the right token", async () => {
    const [signed, token] = [senderOf("gitlab"), senderOf("gitlab", 1)];
    const tokenKey = token.newKey();
    await using http = await start(signed, tokenKey.secret);
    const withToken = token.send(tokenKey.signing, http.clock.ms);
    expect((await http.deliver(withToken)).status).toBe(202);
    const { "webhook-signature": signature = "" } = http.sent.headers;
    const forged = withHeaders(withToken, {
      "webhook-id": "msg_9",
      "webhook-timestamp": "1",
      "webhook-signature": signature,
    });
    expect((await http.deliver(forged)).status).toBe(401);
    expect((await http.deliver(http.sent)).status).toBe(202);
  });
});

test("Stripe: two v1 while a secret is rolled; v0 does not count", async () => {
  await using http = await start(senderOf("stripe"));
  const header = http.sent.headers["Stripe-Signature"] ?? "";
  const [time = "", right = ""] = header.split(",");
  const signed = (text: string) => http.deliver(withHeaders(http.sent, { "Stripe-Signature": text }));
  expect((await signed(`${time},v1=${"0".repeat(64)},${right}`)).status).toBe(202);
  expect((await signed(`${time},${right.replace("v1", "v0")}`)).status).toBe(401);
  expect((await signed(right)).status).toBe(401);
  expect((await signed(`t=9,${time},${right}`)).status).toBe(401);
});

test("Twilio: a body that is no form must be signed by its digest in the URL", async () => {
  const sender = senderOf("twilio");
  await using http = await start(sender);
  // Signed is the URL alone, which the signature of an empty form covers.
  const empty = sender.send(http.key.signing, http.clock.ms, "");
  const forged = { ...withHeaders(empty, { "content-type": "application/json" }), body: Buffer.from('{"a":1}') };
  expect(await (await http.deliver(forged)).json()).toEqual({
    error: "the URL has no bodySHA256, which signs a body that is not a form",
  });
  expect((await http.deliver({ ...http.sent, query: "?foo=1&bar=3" })).status).toBe(401);
  expect(http.store.rows).toEqual([]);
});

test("Adyen: an unsigned second item is refused", async () => {
  await using http = await start(senderOf("adyen"));
  const body = JSON.parse(http.sent.body.toString()) as { notificationItems: object[] };
  body.notificationItems.push({ NotificationRequestItem: { pspReference: "mine" } });
  const response = await http.deliver({ ...http.sent, body: Buffer.from(JSON.stringify(body)) });
  expect(response.status).toBe(401);
  expect(http.store.rows).toEqual([]);
});

test("Adyen: an item in anything but a list is refused, since its key would not be found there", async () => {
  await using http = await start(senderOf("adyen"));
  expect((await http.deliver(http.sent)).status).toBe(202);
  const { notificationItems } = JSON.parse(http.sent.body.toString()) as { notificationItems: object[] };
  const body = JSON.stringify({ notificationItems: { 0: notificationItems[0] } });
  expect((await http.deliver({ ...http.sent, body: Buffer.from(body) })).status).toBe(401);
  expect(http.store.rows).toHaveLength(1);
});

test("Mailgun: another event with a recorded signature is a duplicate", async () => {
  await using http = await start(senderOf("mailgun"));
  expect((await http.deliver(http.sent)).status).toBe(202);
  const body = {
    ...(JSON.parse(http.sent.body.toString()) as object),
    "event-data": { event: "unsubscribed", id: "other" },
  };
  const forged = await http.deliver({ ...http.sent, body: Buffer.from(JSON.stringify(body)) });
  expect(await forged.json()).toEqual({ status: "duplicate" });
});

test("Microsoft Graph: every item must have the secret", async () => {
  const sender = senderOf("microsoft-graph");
  await using http = await start(sender);
  const right = { clientState: http.key.secret };
  for (const value of [[right, {}], [{}, right], [right, { clientState: "x" }], [], right, "x", null]) {
    const response = await http.deliver({ ...http.sent, body: Buffer.from(JSON.stringify({ value })) });
    expect(response.status).toBe(401);
  }
  expect(http.store.rows).toEqual([]);
});

test("a repeated signature header is not two chances", async () => {
  const sender = senderOf("github");
  const key = sender.newKey();
  const check = createProviderCheck(authOf(sender, key.secret), { now: () => 0 });
  const body = Buffer.from("{}");
  const right = `sha256=${createHmac("sha256", key.secret).update(body).digest("hex")}`;
  expect(check.refusal({ headers: { "x-hub-signature-256": right } }, body)).toBeNull();
  expect(check.refusal({ headers: { "x-hub-signature-256": ["sha256=00", right] } }, body)).not.toBeNull();
});

test.each(["github", "slack"])(
  "%s: recorded JSON is a duplicate as a form, too: the type is not signed",
  async (name) => {
    const sender = senderOf(name);
    await using http = await start(sender);
    const event = sender.send(http.key.signing, http.clock.ms, '{"event_id":"Ev1","event":{"type":"message"}}');
    expect((await http.deliver(withHeaders(event, { "content-type": "application/json" }))).status).toBe(202);
    const form = withHeaders(event, { "content-type": "application/x-www-form-urlencoded" });
    expect(await (await http.deliver(form)).json()).toEqual({ status: "duplicate" });
    expect(http.store.rows).toHaveLength(1);
  },
);

describe("a recorded request under the content type of a batch, which is not signed,", () => {
  const TYPES = ["application/x-ndjson", "application/ndjson", "application/cloudevents-batch+json"];

  test.each(["standard-webhooks", "svix", "sendgrid", "hubspot", "github", "stripe"])(
    "is a duplicate at %s",
    async (name) => {
      await using http = await start(senderOf(name));
      expect((await http.deliver(http.sent)).status).toBe(202);
      for (const type of TYPES) {
        const again = await http.deliver(withHeaders(http.sent, { "content-type": type }));
        expect([type, again.status, await again.json()]).toEqual([type, 200, { status: "duplicate" }]);
      }
      expect(http.store.rows).toHaveLength(1);
    },
  );
});
