import type { SignatureScheme } from "../scheme.ts";
import type { Provider } from "./provider.ts";

/** Standard Webhooks and who uses it as it is. */

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

export const STANDARD = {
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
