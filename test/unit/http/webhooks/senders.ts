import { createHash, createHmac, generateKeyPairSync, type KeyObject, sign } from "node:crypto";
import { crc32 } from "node:zlib";

/**
 * Every provider as a sender, written from its own documents and apart from the tables of the service: `node:crypto` is
 * the oracle.
 */

/** The key of an HMAC, or a private key. */
export type Signing = string | Buffer | KeyObject;

/** A request as a provider sends it. */
export interface Sent {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  /** Behind the path of the source. */
  readonly query?: string;
}

export interface Sender {
  readonly name: string;
  /** Keys of the `auth` block besides `provider` and `secret`. */
  readonly settings?: Readonly<Record<string, unknown>>;
  /** What the provider holds, and what is configured: the same, or private and public key. */
  readonly newKey: () => { readonly signing: Signing; readonly secret: string };
  /** A message as the provider sends it. @param ms its time */
  readonly send: (signing: Signing, ms: number, message?: string) => Sent;
  readonly expected: { readonly key: string | RegExp; readonly type: string | null };
  /** The place of the signature, to be changed by a test. */
  readonly signature: { readonly header: string } | { readonly member: readonly (string | number)[] };
  /** How the signature is written, without what stands before it. */
  readonly encoding: "hex" | "base64" | "text";
  /** Whether a time is signed, and how old it may be, in ms. */
  readonly toleranceMs?: number;
  /** Whether every byte of the body is signed; `Mailgun` signs a token in it alone. */
  readonly signsBody?: false;
}

export const URL_OF_SOURCE = "https://hooks.example.com/inbox/orders";

const FIVE_MINUTES = 300_000;
const HOUR = 3_600_000;
const JSON_TYPE = { "content-type": "application/json" };
const FORM_TYPE = { "content-type": "application/x-www-form-urlencoded" };

const seconds = (ms: number): string => String(Math.floor(ms / 1000));
const hmac = (key: Signing, digest: string, ...parts: readonly (string | Buffer)[]): Buffer => {
  const sum = createHmac(digest, key);
  for (const part of parts) sum.update(part);
  return sum.digest();
};

let made = 0;
const textKey = () => {
  made++;
  const key = `secret-${made}-${createHash("sha256").update(String(made)).digest("hex").slice(0, 20)}`;
  return { signing: key, secret: key };
};
const whsecKey = () => {
  const { signing } = textKey();
  return { signing: String(signing), secret: `whsec_${Buffer.from(String(signing)).toString("base64")}` };
};
const hexKey = () => {
  const { signing } = textKey();
  const hex = createHash("sha256").update(String(signing)).digest("hex");
  return { signing: hex, secret: hex.toUpperCase() };
};
const rawPublic = (key: KeyObject): Buffer => key.export({ format: "der", type: "spki" }).subarray(-32);

/** One header with the signature of the body. */
function ofBody(header: string, prefix: string, digest: string, encoding: "hex" | "base64", more = {}) {
  return (signing: Signing, _ms: number, message?: string): Sent => {
    const body = Buffer.from(message ?? "");
    return {
      headers: { ...JSON_TYPE, ...more, [header]: prefix + hmac(signing, digest, body).toString(encoding) },
      body,
    };
  };
}

function standard(names: "webhook" | "svix") {
  return (signing: Signing, ms: number, message = EVENT): Sent => {
    const text = `msg_1.${seconds(ms)}.${message}`;
    const isHmac = typeof signing === "string" || Buffer.isBuffer(signing);
    const signature = isHmac
      ? `v1,${hmac(signing, "sha256", text).toString("base64")}`
      : `v1a,${sign(null, Buffer.from(text), signing).toString("base64")}`;
    const headers = {
      [`${names}-id`]: "msg_1",
      [`${names}-timestamp`]: seconds(ms),
      [`${names}-signature`]: signature,
    };
    return { headers: { ...JSON_TYPE, ...headers }, body: Buffer.from(message) };
  };
}

const EVENT = '{"id":"evt_1","type":"order.paid","data":{"é":[1,2.50]}}';

const adyenItem = {
  pspReference: "7914073381342284",
  originalReference: "",
  merchantAccountCode: "TestMerchant",
  merchantReference: "TestPayment-1407325143704",
  amount: { value: 1130, currency: "EUR" },
  eventCode: "AUTHORISATION",
  success: "true",
};

export const SENDERS: readonly Sender[] = [
  {
    name: "standard-webhooks",
    newKey: whsecKey,
    send: standard("webhook"),
    expected: { key: "msg_1", type: "order.paid" },
    signature: { header: "webhook-signature" },
    encoding: "base64",
    toleranceMs: FIVE_MINUTES,
  },
  {
    name: "standard-webhooks",
    newKey() {
      const { privateKey, publicKey } = generateKeyPairSync("ed25519");
      return { signing: privateKey, secret: `whpk_${rawPublic(publicKey).toString("base64")}` };
    },
    send: standard("webhook"),
    expected: { key: "msg_1", type: "order.paid" },
    signature: { header: "webhook-signature" },
    encoding: "base64",
    toleranceMs: FIVE_MINUTES,
  },
  {
    name: "svix",
    newKey: whsecKey,
    send: standard("svix"),
    expected: { key: "msg_1", type: "order.paid" },
    signature: { header: "svix-signature" },
    encoding: "base64",
    toleranceMs: FIVE_MINUTES,
  },
  {
    name: "github",
    newKey: textKey,
    send(signing, _ms, message = '{"action":"opened"}') {
      const body = Buffer.from(message);
      const headers = {
        "X-GitHub-Delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        "X-GitHub-Event": "pull_request",
        "X-Hub-Signature": `sha1=${hmac(signing, "sha1", body).toString("hex")}`,
        "X-Hub-Signature-256": `sha256=${hmac(signing, "sha256", body).toString("hex")}`,
      };
      return { headers: { ...JSON_TYPE, ...headers }, body };
    },
    expected: { key: "72d3162e-cc78-11e3-81ab-4c9367dc0958", type: "pull_request" },
    signature: { header: "X-Hub-Signature-256" },
    encoding: "hex",
  },
  {
    name: "stripe",
    newKey: textKey,
    send(signing, ms, message = EVENT) {
      const t = seconds(ms);
      const v1 = hmac(signing, "sha256", `${t}.`, message).toString("hex");
      return { headers: { ...JSON_TYPE, "Stripe-Signature": `t=${t},v1=${v1}` }, body: Buffer.from(message) };
    },
    expected: { key: "evt_1", type: "order.paid" },
    signature: { header: "Stripe-Signature" },
    encoding: "hex",
    toleranceMs: FIVE_MINUTES,
  },
  {
    name: "shopify",
    newKey: textKey,
    send: (signing, ms, message = EVENT) =>
      ofBody("X-Shopify-Hmac-Sha256", "", "sha256", "base64", {
        "X-Shopify-Topic": "orders/paid",
        "X-Shopify-Event-Id": "98880550-7158-44d4-b7cd-2c97c8a091b5",
        "X-Shopify-Webhook-Id": "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043",
      })(signing, ms, message),
    expected: { key: "joined:orders/paid:98880550-7158-44d4-b7cd-2c97c8a091b5", type: "orders/paid" },
    signature: { header: "X-Shopify-Hmac-Sha256" },
    encoding: "base64",
  },
  {
    name: "slack",
    newKey: textKey,
    send(signing, ms, message = '{"type":"event_callback","event_id":"Ev1","event":{"type":"message"}}') {
      const time = seconds(ms);
      const signature = `v0=${hmac(signing, "sha256", `v0:${time}:${message}`).toString("hex")}`;
      const headers = { "X-Slack-Request-Timestamp": time, "X-Slack-Signature": signature };
      const type = message.startsWith("{") ? JSON_TYPE : FORM_TYPE;
      return { headers: { ...type, ...headers }, body: Buffer.from(message) };
    },
    expected: { key: "Ev1", type: "message" },
    signature: { header: "X-Slack-Signature" },
    encoding: "hex",
    toleranceMs: FIVE_MINUTES,
  },
  {
    name: "twilio",
    settings: { url: URL_OF_SOURCE },
    newKey: textKey,
    send(signing, _ms, message = "MessageSid=SM1&MessageStatus=sent&Body=hello+%C3%A9&To=%2B18005551212") {
      const query = "?foo=1&bar=2";
      const fields = [...new URLSearchParams(message)].sort(([a], [b]) => (a < b ? -1 : 1)).flat();
      const signature = hmac(signing, "sha1", URL_OF_SOURCE + query, fields.join("")).toString("base64");
      const headers = { "X-Twilio-Signature": signature, "I-Twilio-Idempotency-Token": "tok-1" };
      return { headers: { ...FORM_TYPE, ...headers }, body: Buffer.from(message), query };
    },
    expected: { key: "tok-1", type: "sent" },
    signature: { header: "X-Twilio-Signature" },
    encoding: "base64",
  },
  {
    name: "paddle",
    newKey: textKey,
    send(signing, ms, message = '{"event_id":"evt_2","event_type":"transaction.billed"}') {
      const ts = seconds(ms);
      const h1 = hmac(signing, "sha256", `${ts}:`, message).toString("hex");
      return { headers: { ...JSON_TYPE, "Paddle-Signature": `ts=${ts};h1=${h1}` }, body: Buffer.from(message) };
    },
    expected: { key: "evt_2", type: "transaction.billed" },
    signature: { header: "Paddle-Signature" },
    encoding: "hex",
    toleranceMs: FIVE_MINUTES,
  },
  {
    name: "square",
    settings: { url: URL_OF_SOURCE },
    newKey: textKey,
    send(signing, _ms, message = '{"event_id":"sq-1","type":"payment.updated"}') {
      const signature = hmac(signing, "sha256", URL_OF_SOURCE, message).toString("base64");
      return { headers: { ...JSON_TYPE, "x-square-hmacsha256-signature": signature }, body: Buffer.from(message) };
    },
    expected: { key: "sq-1", type: "payment.updated" },
    signature: { header: "x-square-hmacsha256-signature" },
    encoding: "base64",
  },
  {
    name: "gitlab",
    newKey: whsecKey,
    send(signing, ms, message = '{"object_kind":"push"}') {
      const { headers, body } = standard("webhook")(signing, ms, message);
      return { headers: { ...headers, "X-Gitlab-Event": "Push Hook", "Idempotency-Key": "msg_1" }, body };
    },
    expected: { key: "msg_1", type: "Push Hook" },
    signature: { header: "webhook-signature" },
    encoding: "base64",
    toleranceMs: FIVE_MINUTES,
  },
  {
    name: "gitlab",
    newKey: textKey,
    send: (signing, _ms, message = '{"object_kind":"push"}') => ({
      headers: {
        ...JSON_TYPE,
        "X-Gitlab-Token": String(signing),
        "X-Gitlab-Event": "Push Hook",
        "Idempotency-Key": "f5e5f430-f57b-4e6e-9fac-d9128cd7232f",
      },
      body: Buffer.from(message),
    }),
    expected: { key: "f5e5f430-f57b-4e6e-9fac-d9128cd7232f", type: "Push Hook" },
    signature: { header: "X-Gitlab-Token" },
    encoding: "text",
    signsBody: false,
  },
  {
    name: "bitbucket",
    newKey: textKey,
    send: (signing, ms, message = '{"push":{}}') =>
      ofBody("X-Hub-Signature", "sha256=", "sha256", "hex", {
        "X-Request-UUID": "f5e5f430-0000-4e6e-9fac-d9128cd7232f",
        "X-Event-Key": "repo:push",
      })(signing, ms, message),
    expected: { key: "f5e5f430-0000-4e6e-9fac-d9128cd7232f", type: "repo:push" },
    signature: { header: "X-Hub-Signature" },
    encoding: "hex",
  },
  {
    name: "linear",
    newKey: textKey,
    send: (signing, ms, message) =>
      ofBody("Linear-Signature", "", "sha256", "hex", {
        "Linear-Delivery": "234d1a4e-b617-4388-90fe-adc3633d6b72",
        "Linear-Event": "Issue",
      })(signing, ms, message ?? `{"action":"create","type":"Issue","webhookTimestamp":${ms}}`),
    expected: { key: "234d1a4e-b617-4388-90fe-adc3633d6b72", type: "Issue" },
    signature: { header: "Linear-Signature" },
    encoding: "hex",
    toleranceMs: FIVE_MINUTES,
  },
  {
    name: "zendesk",
    newKey: textKey,
    send(signing, ms, message = '{"id":"35","type":"zen:event-type:ticket.created"}') {
      const time = new Date(ms).toISOString().replace(/\.\d+/, "");
      const headers = {
        "X-Zendesk-Webhook-Signature": hmac(signing, "sha256", time, message).toString("base64"),
        "X-Zendesk-Webhook-Signature-Timestamp": time,
        "X-Zendesk-Webhook-Invocation-Id": "01GK6",
      };
      return { headers: { ...JSON_TYPE, ...headers }, body: Buffer.from(message) };
    },
    expected: { key: "01GK6", type: "zen:event-type:ticket.created" },
    signature: { header: "X-Zendesk-Webhook-Signature" },
    encoding: "base64",
    toleranceMs: FIVE_MINUTES,
  },
  {
    name: "intercom",
    newKey: textKey,
    send: (signing, ms, message = '{"type":"notification_event","id":"notif_78c1","topic":"user.created"}') =>
      ofBody("X-Hub-Signature", "sha1=", "sha1", "hex")(signing, ms, message),
    expected: { key: "notif_78c1", type: "user.created" },
    signature: { header: "X-Hub-Signature" },
    encoding: "hex",
  },
  {
    name: "adyen",
    newKey: hexKey,
    send(signing, _ms, message) {
      const { amount, eventCode, success, ...references } = adyenItem;
      const signed = [...Object.values(references), amount.value, amount.currency, eventCode, success].join(":");
      const hmacSignature = hmac(Buffer.from(String(signing), "hex"), "sha256", signed).toString("base64");
      const item = { additionalData: { hmacSignature }, ...adyenItem };
      const body = { live: "false", notificationItems: [{ NotificationRequestItem: item }] };
      return { headers: JSON_TYPE, body: Buffer.from(message ?? JSON.stringify(body)) };
    },
    expected: { key: "joined:AUTHORISATION:7914073381342284", type: "AUTHORISATION" },
    signature: { member: ["notificationItems", 0, "NotificationRequestItem", "additionalData", "hmacSignature"] },
    encoding: "base64",
    signsBody: false,
  },
  {
    name: "adyen",
    newKey: hexKey,
    send: (signing, ms, message = '{"type":"balancePlatform.accountHolder.created","data":{}}') =>
      ofBody("HmacSignature", "", "sha256", "base64")(Buffer.from(String(signing), "hex"), ms, message),
    expected: { key: /^sha256:/, type: "balancePlatform.accountHolder.created" },
    signature: { header: "HmacSignature" },
    encoding: "base64",
  },
  {
    name: "mailgun",
    newKey: textKey,
    send(signing, ms, message) {
      const [timestamp, token] = [seconds(ms), "e0b5477167110d68991efc6b9f89f0a11066af27834600e123"];
      const signature = { token, timestamp, signature: hmac(signing, "sha256", timestamp, token).toString("hex") };
      const body = { signature, "event-data": { event: "opened", id: "Ase7i2zsRYeDXztHGENqRA" } };
      return { headers: JSON_TYPE, body: Buffer.from(message ?? JSON.stringify(body)) };
    },
    expected: { key: "e0b5477167110d68991efc6b9f89f0a11066af27834600e123", type: "opened" },
    signature: { member: ["signature", "signature"] },
    encoding: "hex",
    toleranceMs: 9 * HOUR,
    signsBody: false,
  },
  {
    name: "sendgrid",
    newKey() {
      const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
      return { signing: privateKey, secret: publicKey.export({ format: "der", type: "spki" }).toString("base64") };
    },
    send(signing, ms, message = '[{"sg_event_id":"sg-1","event":"open"},{"sg_event_id":"sg-2","event":"click"}]\r\n') {
      const time = seconds(ms);
      const headers = {
        "X-Twilio-Email-Event-Webhook-Signature": sign(
          "sha256",
          Buffer.from(time + message),
          signing as KeyObject,
        ).toString("base64"),
        "X-Twilio-Email-Event-Webhook-Timestamp": time,
      };
      return { headers: { ...JSON_TYPE, ...headers }, body: Buffer.from(message) };
    },
    expected: { key: /^sha256:/, type: "open" },
    signature: { header: "X-Twilio-Email-Event-Webhook-Signature" },
    encoding: "base64",
    toleranceMs: 25 * HOUR,
  },
  {
    name: "discord",
    newKey() {
      const { privateKey, publicKey } = generateKeyPairSync("ed25519");
      return { signing: privateKey, secret: rawPublic(publicKey).toString("hex") };
    },
    send(signing, ms, message = '{"version":1,"type":1,"event":{"type":"APPLICATION_AUTHORIZED"}}') {
      const time = seconds(ms);
      const signature = sign(null, Buffer.from(time + message), signing as KeyObject).toString("hex");
      const headers = { "X-Signature-Ed25519": signature, "X-Signature-Timestamp": time };
      return { headers: { ...JSON_TYPE, ...headers }, body: Buffer.from(message) };
    },
    expected: { key: /^sha256:/, type: "APPLICATION_AUTHORIZED" },
    signature: { header: "X-Signature-Ed25519" },
    encoding: "hex",
    toleranceMs: FIVE_MINUTES,
  },
  {
    name: "zoom",
    newKey: textKey,
    send(signing, ms, message = '{"event":"meeting.started","event_ts":1626230691572,"payload":{}}') {
      const time = seconds(ms);
      const signature = `v0=${hmac(signing, "sha256", `v0:${time}:${message}`).toString("hex")}`;
      const headers = { "x-zm-request-timestamp": time, "x-zm-signature": signature };
      return { headers: { ...JSON_TYPE, ...headers }, body: Buffer.from(message) };
    },
    expected: { key: /^sha256:/, type: "meeting.started" },
    signature: { header: "x-zm-signature" },
    encoding: "hex",
    toleranceMs: FIVE_MINUTES,
  },
  {
    name: "hubspot",
    settings: { url: URL_OF_SOURCE },
    newKey: textKey,
    send(
      signing,
      ms,
      message = '[{"eventId":100,"subscriptionId":25,"occurredAt":1701,"subscriptionType":"contact.creation","attemptNumber":0}]',
    ) {
      const text = `POST${URL_OF_SOURCE}?to=a@b${message}${ms}`;
      const headers = {
        "X-HubSpot-Signature-v3": hmac(signing, "sha256", text).toString("base64"),
        "X-HubSpot-Request-Timestamp": String(ms),
      };
      return { headers: { ...JSON_TYPE, ...headers }, body: Buffer.from(message), query: "?to=a%40b" };
    },
    expected: { key: "joined:100:25:1701", type: "contact.creation" },
    signature: { header: "X-HubSpot-Signature-v3" },
    encoding: "base64",
    toleranceMs: FIVE_MINUTES,
  },
  {
    name: "meta",
    newKey: textKey,
    send: (signing, ms, message = '{"object":"page","entry":[{"id":"0"}]}') =>
      ofBody("X-Hub-Signature-256", "sha256=", "sha256", "hex")(signing, ms, message),
    expected: { key: /^sha256:/, type: "page" },
    signature: { header: "X-Hub-Signature-256" },
    encoding: "hex",
  },
  {
    name: "typeform",
    newKey: textKey,
    send: (signing, ms, message = '{"event_id":"LtWXD3crgy","event_type":"form_response"}') =>
      ofBody("Typeform-Signature", "sha256=", "sha256", "base64")(signing, ms, message),
    expected: { key: "LtWXD3crgy", type: "form_response" },
    signature: { header: "Typeform-Signature" },
    encoding: "base64",
  },
  {
    name: "paypal",
    settings: { webhookId: "9XL90610J3647323C" },
    newKey() {
      const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
      return { signing: privateKey, secret: String(publicKey.export({ format: "pem", type: "spki" })) };
    },
    send(signing, ms, message = '{"id":"WH-9UG43882HX7271132","event_type":"PAYMENT.SALE.COMPLETED"}') {
      const time = new Date(ms).toISOString().replace(/\.\d+/, "");
      const text = `d938e770-8046|${time}|9XL90610J3647323C|${crc32(message)}`;
      const headers = {
        "PAYPAL-TRANSMISSION-ID": "d938e770-8046",
        "PAYPAL-TRANSMISSION-TIME": time,
        "PAYPAL-AUTH-ALGO": "SHA256withRSA",
        "PAYPAL-TRANSMISSION-SIG": sign("sha256", Buffer.from(text), signing as KeyObject).toString("base64"),
      };
      return { headers: { ...JSON_TYPE, ...headers }, body: Buffer.from(message) };
    },
    expected: { key: "WH-9UG43882HX7271132", type: "PAYMENT.SALE.COMPLETED" },
    signature: { header: "PAYPAL-TRANSMISSION-SIG" },
    encoding: "base64",
    toleranceMs: 73 * HOUR,
  },
  {
    name: "microsoft-graph",
    newKey: textKey,
    send(signing, _ms, message) {
      const item = { changeType: "created", clientState: signing, resource: "users/1/messages/2" };
      return { headers: JSON_TYPE, body: Buffer.from(message ?? JSON.stringify({ value: [item, item] })) };
    },
    expected: { key: /^sha256:/, type: "created" },
    signature: { member: ["value", 1, "clientState"] },
    encoding: "text",
    signsBody: false,
  },
];
