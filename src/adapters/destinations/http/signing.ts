import { createHmac } from "node:crypto";
import { madeOf } from "../../../model/secret.ts";
import type { OutboundMessage } from "../../../ports/destination.ts";
import type { SecretMasker } from "../../../ports/runtime.ts";
import type { Clock } from "../../../time/clock.ts";
import type { HttpSigning } from "./kind.ts";

/** A header that the destination itself sets. */
export interface RequestHeader {
  /** In lower case. */
  readonly name: string;
  /** Null sends no header of the name. */
  readonly value: string | null;
}

/** Signs a request: the headers to send with it. Each attempt has its own time, and so its own signature. */
export type Signer = (message: Pick<OutboundMessage, "id" | "body">) => readonly RequestHeader[];

/** @param secrets learns what errors must not show */
export function createSigner(
  signing: HttpSigning,
  clock: Pick<Clock, "now">,
  secrets: Pick<SecretMasker, "add">,
): Signer {
  const current = madeOf(signing.secrets, () => {
    const texts = signing.secrets.map((secret) => secret.reveal());
    for (const text of texts) secrets.add(text);
    return signing.scheme === "hmac" ? hmac(signing, texts, clock) : standardWebhooks(texts, clock);
  });
  const dropped = [...STANDARD_HEADERS, ...SVIX_HEADERS, signing.headerName.toLowerCase()];
  const absent = dropped.map((name) => ({ name, value: null }));
  return (message) => [...current()(message), ...absent];
}

/** What receivers read beside, or instead of, the standard's: one of a message would make the signature wrong. */
const SVIX_HEADERS = ["svix-id", "svix-timestamp", "svix-signature"];
/** What `standard-webhooks` sends. */
export const STANDARD_HEADERS = ["webhook-id", "webhook-timestamp", "webhook-signature"] as const;

/** Standard Webhooks 1.0.0, "Signature scheme", with symmetric keys. */
function standardWebhooks(texts: readonly string[], clock: Pick<Clock, "now">): Signer {
  if (!texts.every(isBase64Key)) throw new Error("a secret is not base64");
  const keys = texts.map((text) => Buffer.from(withoutPrefix(text), "base64"));
  return ({ id, body }) => {
    const seconds = String(Math.floor(clock.now() / 1000));
    const signatures = keys.map(
      (key) => `v1,${createHmac("sha256", key).update(`${id}.${seconds}.${body}`).digest("base64")}`,
    );
    const values = [id, seconds, signatures.join(" ")];
    return STANDARD_HEADERS.map((name, index) => ({ name, value: values[index] ?? "" }));
  };
}

/** What a source with `auth` of kind `hmac` and the same keys verifies (spec, "Source auth kinds"). */
function hmac(
  { headerName, algorithm, signaturePrefix, timestampHeader }: HttpSigning,
  texts: readonly string[],
  clock: Pick<Clock, "now">,
): Signer {
  const digest = DIGESTS[algorithm];
  const signatureName = headerName.toLowerCase();
  const timeName = timestampHeader?.toLowerCase();
  return ({ body }) => {
    const time = String(clock.now());
    const signed = timeName === undefined ? body : `${time}.${body}`;
    const signatures = texts.map((text) => signaturePrefix + createHmac(digest, text).update(signed).digest("hex"));
    const signature = { name: signatureName, value: signatures.join(",") };
    return timeName === undefined ? [signature] : [{ name: timeName, value: time }, signature];
  };
}

const DIGESTS: Readonly<Record<HttpSigning["algorithm"], string>> = { HmacSHA256: "sha256", HmacSHA512: "sha512" };

/** Whether a text is the base64 of a key, as `standard-webhooks` has its secrets. */
export function isBase64Key(text: string): boolean {
  const key = withoutPrefix(text);
  return key !== "" && /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?$/.test(key);
}

/** The base64 of a key that may begin with `whsec_`. */
function withoutPrefix(text: string): string {
  return text.startsWith("whsec_") ? text.slice("whsec_".length) : text;
}
