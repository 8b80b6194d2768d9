import {
  BODY_DIGEST,
  type Greeting,
  type HandshakeAnswer,
  HOUR_MS,
  type Provider,
  type SignatureScheme,
  scalarAt,
  valueAt,
} from "../scheme.ts";
import { HMAC } from "./hmac.ts";

/** Providers that sign with a private key of theirs, and providers that send a secret back. */
const PUBLIC_KEY = {
  sendgrid: {
    title: "Twilio SendGrid",
    secret: "the verification key of the signed event webhook",
    schemes: [
      {
        at: { header: "X-Twilio-Email-Event-Webhook-Signature" },
        encoding: "base64",
        key: { publicKey: "ec" },
        signed: "{{ timestamp }}{{ body }}",
        time: { at: { header: "X-Twilio-Email-Event-Webhook-Timestamp" }, unit: "s" },
      },
    ],
    idempotencyKey: [{ each: ["sg_event_id"] }, { path: "$.sg_event_id" }, BODY_DIGEST],
    eventType: [{ path: "$[0].event" }, { path: "$.event" }],
    // It retries for 24 hours.
    toleranceMs: 25 * HOUR_MS,
  },
  discord: {
    title: "Discord",
    secret: "the application's public key",
    schemes: [
      {
        at: { header: "X-Signature-Ed25519" },
        encoding: "hex",
        key: { publicKey: "ed25519" },
        signed: "{{ timestamp }}{{ body }}",
        time: { at: { header: "X-Signature-Timestamp" }, unit: "s" },
      },
    ],
    idempotencyKey: [{ path: "$.id" }, BODY_DIGEST],
    eventType: [{ path: "$.event.type" }, { path: "$.type" }],
    handshake: { marker: '"type"', reply: discordPing, answers: { 200: { type: 1 }, 204: "" } },
  },
  paypal: {
    title: "PayPal",
    secret: "the signing certificate, as PEM",
    schemes: [
      {
        at: { header: "PayPal-Transmission-Sig" },
        encoding: "base64",
        key: { publicKey: "rsa" },
        signed: "{{ headers.PayPal-Transmission-Id }}|{{ timestamp }}|{{ webhookId }}|{{ crc32 }}",
        time: { at: { header: "PayPal-Transmission-Time" }, unit: "iso" },
      },
    ],
    idempotencyKey: [{ path: "$.id" }],
    eventType: [{ path: "$.event_type" }],
    needs: ["webhookId"],
    // It retries for 3 days.
    toleranceMs: 73 * HOUR_MS,
  },
  "microsoft-graph": {
    title: "Microsoft Graph",
    secret: "the subscription's clientState",
    schemes: [{ at: { list: "$.value", member: "clientState" }, encoding: "text", key: { token: true }, signed: "" }],
    idempotencyKey: [BODY_DIGEST],
    eventType: [
      { path: "$.value[0].changeType" },
      { path: "$.value[0].lifecycleEvent" },
      { path: "$.changeType" },
      { path: "$.lifecycleEvent" },
    ],
    handshake: { greet: graphValidation, answers: { 200: "Validation: Testing" } },
  },
} as const satisfies Readonly<Record<string, Provider>>;

/** Interactions ping with type 1; webhook events with type 0, their events have type 1 and an `event`. */
function discordPing(document: unknown): HandshakeAnswer | undefined {
  if (valueAt(document, "$.event") !== undefined) return undefined;
  const type = scalarAt(document, "$.type");
  if (type === "1") return { status: 200, body: { type: 1 } };
  return type === "0" ? { status: 204, body: "" } : undefined;
}

/** Of plain text; a notification whose URL has that query is a message. */
function graphValidation({ method, query, isJson }: Greeting): HandshakeAnswer | undefined {
  const token = query.get("validationToken");
  return method === "POST" && !isJson && token !== null ? { status: 200, body: token } : undefined;
}

function standardScheme(names: "webhook" | "svix", standard: "whsec_ required" | "whsec_ optional") {
  return {
    at: { header: `${names}-signature`, versions: true },
    encoding: "base64",
    key: { standard },
    signed: `{{ headers.${names}-id }}.{{ timestamp }}.{{ body }}`,
    time: { at: { header: `${names}-timestamp` }, unit: "s" },
  } as const satisfies SignatureScheme;
}

const standardWebhooks: Provider = {
  title: "Standard Webhooks",
  secret: "the signing secret, `whsec_…`, or the public key, `whpk_…`",
  // The id decides which headers count, so that the key is always the id that was signed.
  schemes: [
    { ...standardScheme("svix", "whsec_ optional"), when: "svix-id" },
    standardScheme("webhook", "whsec_ optional"),
  ],
  idempotencyKey: [{ header: "svix-id" }, { header: "webhook-id" }],
  eventType: [{ path: "$.type" }],
};

/** Standard Webhooks and the providers that follow it. */
const STANDARD = {
  "standard-webhooks": standardWebhooks,
  svix: { ...standardWebhooks, title: "Svix" },
  gitlab: {
    title: "GitLab",
    secret: "the signing token, `whsec_…`, or the secret token",
    schemes: [
      { ...standardScheme("webhook", "whsec_ required"), when: "webhook-signature" },
      { at: { header: "X-Gitlab-Token" }, encoding: "text", key: { token: true }, signed: "" },
    ],
    idempotencyKey: [{ header: "webhook-id" }, { header: "Idempotency-Key" }, { digest: "body" }],
    eventType: [{ header: "X-Gitlab-Event" }],
  },
} as const satisfies Readonly<Record<string, Provider>>;

/** Every provider by the name that `auth.provider` takes. A new one is an entry in one of the tables, its tests and a page. */
const PROVIDERS = { ...STANDARD, ...HMAC, ...PUBLIC_KEY } as const satisfies Readonly<Record<string, Provider>>;

type ProviderName = keyof typeof PROVIDERS;

export const PROVIDER_NAMES = Object.keys(PROVIDERS) as readonly ProviderName[];

export function providerOf(name: ProviderName): Provider {
  return PROVIDERS[name];
}
