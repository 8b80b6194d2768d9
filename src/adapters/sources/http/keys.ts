import {
  createHash,
  createHmac,
  createPublicKey,
  type KeyObject,
  timingSafeEqual,
  verify,
  X509Certificate,
} from "node:crypto";
import type { KeyForm } from "./scheme.ts";

/** The keys that configured secrets hold, and how each verifies. */

export interface VerifyingKey {
  /** Of Standard Webhooks; null elsewhere. */
  readonly version: "v1" | "v1a" | null;
  /** @returns whether a signature of these pieces is this key's; secrets are compared in a time that reveals nothing */
  readonly verifier: (signed: readonly Buffer[]) => (signature: Buffer) => boolean;
}

/** Reads a configured secret, undefined for one of another form. @throws Error that quotes nothing of the secret */
export function readKey(form: KeyForm, secret: string): VerifyingKey | undefined {
  if ("token" in form) return tokenKey(secret);
  if ("standard" in form) return standardKey(secret, form.standard === "whsec_ optional");
  if ("hmac" in form) {
    const key = form.secret === "hex" ? fromHex(secret, "an HMAC key in hexadecimal") : Buffer.from(secret, "utf8");
    return hmacKey(key, form.hmac, null);
  }
  if (form.publicKey === "ed25519") return publicKey(ed25519(fromHex(secret, ED25519_HEX)), null, null);
  return publicKey(spki(secret, form.publicKey), "sha256", null);
}

function hmacKey(key: Buffer, digest: string, version: VerifyingKey["version"]): VerifyingKey {
  return {
    version,
    verifier(signed) {
      const hmac = createHmac(digest, key);
      for (const part of signed) hmac.update(part);
      const expected = hmac.digest();
      // The length of a signature is public, its bytes are not.
      return (signature) => signature.length === expected.length && timingSafeEqual(expected, signature);
    },
  };
}

function publicKey(key: KeyObject, digest: string | null, version: VerifyingKey["version"]): VerifyingKey {
  return {
    version,
    verifier(signed) {
      const text = Buffer.concat(signed);
      return (signature) => {
        try {
          return verify(digest, text, key, signature);
        } catch {
          // A signature that OpenSSL cannot read.
          return false;
        }
      };
    },
  };
}

/** Compares digests, in a time that reveals neither content nor length. */
function tokenKey(secret: string): VerifyingKey {
  const matches = matcher(secret);
  return { version: null, verifier: () => matches };
}

/** Whether bytes are those of a secret, in a time that reveals neither its content nor its length. */
export function matcher(secret: string): (received: Buffer) => boolean {
  const expected = sha256(Buffer.from(secret, "utf8"));
  return (received) => timingSafeEqual(expected, sha256(received));
}

const sha256 = (bytes: Buffer): Buffer => createHash("sha256").update(bytes).digest();

const STANDARD = "whsec_ and the key in base64, or whpk_ and an ed25519 public key in base64";

function standardKey(secret: string, isPrefixOptional: boolean): VerifyingKey | undefined {
  if (secret.startsWith("whpk_")) {
    return publicKey(ed25519(fromBase64(secret.slice("whpk_".length), STANDARD)), null, "v1a");
  }
  if (secret.startsWith("whsk_"))
    throw new Error("is a private key (whsk_); set the public one, which begins with whpk_");
  if (!secret.startsWith("whsec_") && !isPrefixOptional) return undefined;
  return hmacKey(fromBase64(secret.replace(/^whsec_/, ""), STANDARD), "sha256", "v1");
}

function fromBase64(text: string, expected: string): Buffer {
  // Of one character nothing is left: anybody can sign with an empty key.
  if (!/^[A-Za-z0-9+/_-]{2,}={0,2}$/.test(text)) throw new Error(`expected ${expected}`);
  return Buffer.from(text, "base64");
}

function fromHex(text: string, expected: string): Buffer {
  if (!/^(?:[0-9a-f]{2})+$/i.test(text)) throw new Error(`expected ${expected}`);
  return Buffer.from(text, "hex");
}

const ED25519_HEX = "an ed25519 public key: 64 hexadecimal digits";
/** DER of an ed25519 public key up to its 32 bytes (RFC 8410, section 4). */
const ED25519_PREFIX = Buffer.from("302a300506032b6570032100", "hex");
const ED25519_BYTES = 32;

function ed25519(bytes: Buffer): KeyObject {
  if (bytes.length !== ED25519_BYTES)
    throw new Error(`expected an ed25519 public key of 32 bytes; found ${bytes.length}`);
  return createPublicKey({ key: Buffer.concat([ED25519_PREFIX, bytes]), format: "der", type: "spki" });
}

function spki(secret: string, type: "ec" | "rsa"): KeyObject {
  const key = readPublicKey(secret.trim());
  if (key?.asymmetricKeyType !== type) {
    const kind = type === "ec" ? "an ECDSA public key" : "an RSA public key or certificate";
    throw new Error(`expected ${kind} as PEM or base64`);
  }
  return key;
}

function readPublicKey(text: string): KeyObject | undefined {
  try {
    if (text.includes("BEGIN CERTIFICATE")) return new X509Certificate(text).publicKey;
    if (text.includes("-----")) return createPublicKey(text);
    return createPublicKey({ key: Buffer.from(text, "base64"), format: "der", type: "spki" });
  } catch {
    return undefined;
  }
}
