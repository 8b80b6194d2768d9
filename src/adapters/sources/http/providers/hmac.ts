import { createHmac } from "node:crypto";
import { matcher } from "../keys.ts";
import {
  BODY_DIGEST,
  type Greeting,
  type HandshakeAnswer,
  HMAC_SHA256,
  HOUR_MS,
  type Provider,
  scalarAt,
} from "../scheme.ts";

/** Providers that sign with an HMAC. */

export const HMAC = {
  github: {
    title: "GitHub",
    secret: "the webhook's secret",
    schemes: [
      {
        at: { header: "X-Hub-Signature-256", prefix: "sha256=" },
        encoding: "hex",
        key: HMAC_SHA256,
        signed: "{{ body }}",
      },
    ],
    idempotencyKey: [{ header: "X-GitHub-Delivery" }],
    eventType: [{ header: "X-GitHub-Event" }],
    form: { jsonField: "payload" },
  },
  stripe: {
    title: "Stripe",
    secret: "the endpoint's signing secret, `whsec_…`",
    schemes: [
      {
        at: { header: "Stripe-Signature", field: "v1", separator: "," },
        encoding: "hex",
        key: HMAC_SHA256,
        signed: "{{ timestamp }}.{{ body }}",
        time: { at: { field: "t" }, unit: "s" },
      },
    ],
    idempotencyKey: [{ path: "$.id" }],
    eventType: [{ path: "$.type" }],
  },
  shopify: {
    title: "Shopify",
    secret: "the app's client secret, or the store's webhook signing secret",
    schemes: [{ at: { header: "X-Shopify-Hmac-Sha256" }, encoding: "base64", key: HMAC_SHA256, signed: "{{ body }}" }],
    // One event of the shop can be sent under several topics.
    idempotencyKey: [
      { joined: [{ header: "X-Shopify-Topic" }, { header: "X-Shopify-Event-Id" }] },
      { header: "X-Shopify-Webhook-Id" },
    ],
    eventType: [{ header: "X-Shopify-Topic" }],
  },
  slack: {
    title: "Slack",
    secret: "the app's signing secret",
    schemes: [
      {
        at: { header: "X-Slack-Signature", prefix: "v0=" },
        encoding: "hex",
        key: HMAC_SHA256,
        signed: "v0:{{ timestamp }}:{{ body }}",
        time: { at: { header: "X-Slack-Request-Timestamp" }, unit: "s" },
      },
    ],
    idempotencyKey: [{ path: "$.event_id" }, { path: "$.trigger_id" }, BODY_DIGEST],
    eventType: [{ path: "$.event.type" }, { path: "$.command" }, { path: "$.type" }],
    form: { jsonField: "payload" },
    handshake: {
      marker: "url_verification",
      reply: slackChallenge,
      answers: { 200: "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P" },
    },
  },
  twilio: {
    title: "Twilio",
    secret: "the account's auth token",
    schemes: [
      {
        at: { header: "X-Twilio-Signature" },
        encoding: "base64",
        key: { hmac: "sha1", secret: "text" },
        signed: "{{ url }}{{ form }}",
        anyPort: true,
      },
    ],
    idempotencyKey: [{ header: "I-Twilio-Idempotency-Token" }, BODY_DIGEST],
    eventType: ["EventType", "MessageStatus", "SmsStatus", "CallStatus"].map((name) => ({ path: `$.${name}` })),
    needs: ["url"],
    form: {},
  },
  paddle: {
    title: "Paddle",
    secret: "the notification destination's secret key, `pdl_ntfset_…`",
    schemes: [
      {
        at: { header: "Paddle-Signature", field: "h1", separator: ";" },
        encoding: "hex",
        key: HMAC_SHA256,
        signed: "{{ timestamp }}:{{ body }}",
        time: { at: { field: "ts" }, unit: "s" },
      },
    ],
    idempotencyKey: [{ path: "$.event_id" }],
    eventType: [{ path: "$.event_type" }],
  },
  square: {
    title: "Square",
    secret: "the subscription's signature key",
    schemes: [
      {
        at: { header: "X-Square-HmacSha256-Signature" },
        encoding: "base64",
        key: HMAC_SHA256,
        signed: "{{ url }}{{ body }}",
      },
    ],
    idempotencyKey: [{ path: "$.event_id" }],
    eventType: [{ path: "$.type" }],
    needs: ["url"],
  },
  bitbucket: {
    title: "Bitbucket",
    secret: "the webhook's secret",
    schemes: [
      { at: { header: "X-Hub-Signature", prefix: "sha256=" }, encoding: "hex", key: HMAC_SHA256, signed: "{{ body }}" },
    ],
    idempotencyKey: [{ header: "X-Request-UUID" }, { header: "X-Request-Id" }, BODY_DIGEST],
    eventType: [{ header: "X-Event-Key" }],
  },
  linear: {
    title: "Linear",
    secret: "the webhook's signing secret",
    schemes: [
      {
        at: { header: "Linear-Signature" },
        encoding: "hex",
        key: HMAC_SHA256,
        signed: "{{ body }}",
        time: { at: { path: "$.webhookTimestamp" }, unit: "ms" },
      },
    ],
    idempotencyKey: [{ header: "Linear-Delivery" }],
    eventType: [{ header: "Linear-Event" }, { path: "$.type" }],
  },
  zendesk: {
    title: "Zendesk",
    secret: "the webhook's signing secret",
    schemes: [
      {
        at: { header: "X-Zendesk-Webhook-Signature" },
        encoding: "base64",
        key: HMAC_SHA256,
        signed: "{{ timestamp }}{{ body }}",
        time: { at: { header: "X-Zendesk-Webhook-Signature-Timestamp" }, unit: "iso" },
      },
    ],
    // A body that a trigger sends is the user's own: its `id` may be that of a ticket.
    idempotencyKey: [{ header: "X-Zendesk-Webhook-Invocation-Id" }, BODY_DIGEST],
    eventType: [{ path: "$.type" }],
  },
  intercom: {
    title: "Intercom",
    secret: "the app's client secret",
    schemes: [
      {
        at: { header: "X-Hub-Signature", prefix: "sha1=" },
        encoding: "hex",
        key: { hmac: "sha1", secret: "text" },
        signed: "{{ body }}",
      },
    ],
    // Its test request has no id.
    idempotencyKey: [{ path: "$.id" }, BODY_DIGEST],
    eventType: [{ path: "$.topic" }],
    // It asks with HEAD whether the URL answers.
    handshake: {
      methods: ["HEAD"],
      greet: ({ method }) => (method === "HEAD" ? { status: 200, body: "" } : undefined),
    },
  },
  adyen: {
    title: "Adyen",
    secret: "the HMAC key, in hexadecimal",
    schemes: [
      // Balance Platform and other webhooks for platforms.
      {
        when: "HmacSignature",
        at: { header: "HmacSignature" },
        encoding: "base64",
        key: { hmac: "sha256", secret: "hex" },
        signed: "{{ body }}",
      },
      {
        at: { path: "$.notificationItems[0].NotificationRequestItem.additionalData.hmacSignature" },
        encoding: "base64",
        key: { hmac: "sha256", secret: "hex" },
        // The reference alone is the merchant's own: with a colon in others, one signature would fit several items.
        signed: [
          "$.pspReference",
          "$.originalReference",
          "$.merchantAccountCode",
          "text $.merchantReference",
          "number $.amount.value",
          "$.amount.currency",
          "$.eventCode",
          "$.success",
        ]
          .map((member) => `{{ ${member.replace("$", "$.notificationItems[0].NotificationRequestItem")} }}`)
          .join(":"),
        // Adyen sends one item; a second one would pass unsigned.
        without: "$.notificationItems[1]",
      },
    ],
    idempotencyKey: [
      {
        joined: [
          { path: "$.notificationItems[0].NotificationRequestItem.eventCode" },
          { path: "$.notificationItems[0].NotificationRequestItem.pspReference" },
        ],
      },
      BODY_DIGEST,
    ],
    eventType: [{ path: "$.notificationItems[0].NotificationRequestItem.eventCode" }, { path: "$.type" }],
  },
  mailgun: {
    title: "Mailgun",
    secret: "the HTTP webhook signing key",
    schemes: [
      {
        at: { path: "$.signature.signature" },
        encoding: "hex",
        key: HMAC_SHA256,
        signed: "{{ timestamp }}{{ $.signature.token }}",
        time: { at: { path: "$.signature.timestamp" }, unit: "s" },
      },
    ],
    // Nothing else of the body is signed: another key would let one signature pass with any event.
    idempotencyKey: [{ path: "$.signature.token" }],
    eventType: [{ path: "$.event-data.event" }],
    // It retries for 8 hours.
    toleranceMs: 9 * HOUR_MS,
  },
  zoom: {
    title: "Zoom",
    secret: "the app's secret token",
    schemes: [
      {
        at: { header: "X-Zm-Signature", prefix: "v0=" },
        encoding: "hex",
        key: HMAC_SHA256,
        signed: "v0:{{ timestamp }}:{{ body }}",
        time: { at: { header: "X-Zm-Request-Timestamp" }, unit: "s" },
      },
    ],
    idempotencyKey: [BODY_DIGEST],
    eventType: [{ path: "$.event" }],
    handshake: {
      marker: "endpoint.url_validation",
      reply: zoomValidation,
      answers: { 200: { plainToken: "qgg8vlvZRS6UYooatFL8Aw", encryptedToken: "the token's HMAC in hexadecimal" } },
    },
  },
  hubspot: {
    title: "HubSpot",
    secret: "the app's client secret",
    schemes: [
      {
        at: { header: "X-HubSpot-Signature-v3" },
        encoding: "base64",
        key: HMAC_SHA256,
        signed: "{{ method }}{{ decodedUrl }}{{ body }}{{ timestamp }}",
        time: { at: { header: "X-HubSpot-Request-Timestamp" }, unit: "ms" },
      },
    ],
    // A retry of a batch counts the attempts in its body.
    idempotencyKey: [
      { each: ["eventId", "subscriptionId", "occurredAt"] },
      { joined: [{ path: "$.eventId" }, { path: "$.subscriptionId" }, { path: "$.occurredAt" }] },
      BODY_DIGEST,
    ],
    eventType: [{ path: "$[0].subscriptionType" }, { path: "$.subscriptionType" }],
    needs: ["url"],
  },
  meta: {
    title: "Meta",
    secret: "the app secret",
    schemes: [
      {
        at: { header: "X-Hub-Signature-256", prefix: "sha256=" },
        encoding: "hex",
        key: HMAC_SHA256,
        signed: "{{ body }}",
      },
    ],
    idempotencyKey: [BODY_DIGEST],
    eventType: [{ path: "$.object" }],
    takes: ["verifyToken", "verifyTokens"],
    handshake: { methods: ["GET"], greet: metaSubscription },
  },
  typeform: {
    title: "Typeform",
    secret: "the webhook's secret",
    schemes: [
      {
        at: { header: "Typeform-Signature", prefix: "sha256=" },
        encoding: "base64",
        key: HMAC_SHA256,
        signed: "{{ body }}",
      },
    ],
    idempotencyKey: [{ path: "$.event_id" }],
    eventType: [{ path: "$.event_type" }],
  },
} as const satisfies Readonly<Record<string, Provider>>;

function slackChallenge(document: unknown): HandshakeAnswer | undefined {
  const challenge = scalarAt(document, "$.challenge");
  if (scalarAt(document, "$.type") !== "url_verification" || challenge === undefined) return undefined;
  return { status: 200, body: challenge };
}

function zoomValidation(document: unknown, secret: () => string | undefined): HandshakeAnswer | undefined {
  const plainToken = scalarAt(document, "$.payload.plainToken");
  if (scalarAt(document, "$.event") !== "endpoint.url_validation" || plainToken === undefined) return undefined;
  const key = secret();
  if (key === undefined) return undefined;
  const encryptedToken = createHmac("sha256", key).update(plainToken).digest("hex");
  return { status: 200, body: { plainToken, encryptedToken } };
}

const WRONG_TOKEN: HandshakeAnswer = { status: 403, body: { error: "the hub.verify_token is not auth.verifyToken" } };

function metaSubscription({ method, query }: Greeting, verifyTokens: readonly string[]): HandshakeAnswer | undefined {
  const challenge = query.get("hub.challenge");
  if (method !== "GET") return undefined;
  if (query.get("hub.mode") !== "subscribe" || challenge === null) return WRONG_TOKEN;
  const given = Buffer.from(query.get("hub.verify_token") ?? "", "utf8");
  // Without an early end, which would tell by its time which one was right.
  const right = verifyTokens.filter((token) => matcher(token)(given));
  return right.length > 0 ? { status: 200, body: challenge } : WRONG_TOKEN;
}
