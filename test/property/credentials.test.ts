import { createHmac } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import type { HmacAuth } from "../../src/adapters/sources/http/schema.ts";
import { createVerifier } from "../../src/http/credentials.ts";
import { Secret } from "../../src/model/secret.ts";
import { settings } from "./settings.ts";
import { anyText } from "./text.ts";

const NOW = Date.UTC(2024, 0, 1);
const TOLERANCE_MS = 300_000;
const clock = { now: () => NOW };
const secrets = anyText({ minLength: 1 });
const bodies = fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes));
const algorithms = fc.constantFrom("HmacSHA256" as const, "HmacSHA512" as const);
const prefixes = fc.constantFrom("sha256=", "", "v1,");

interface Signed {
  readonly auth: HmacAuth;
  readonly body: Buffer;
  readonly signature: Buffer;
  readonly timestamp: string;
  readonly signsTimestamp: boolean;
}

/** A request that its sender has signed by the rules of the specification; `node:crypto` is the oracle. */
const signedRequests: fc.Arbitrary<Signed> = fc
  .record({
    secret: secrets,
    body: bodies,
    algorithm: algorithms,
    signaturePrefix: prefixes,
    ageMs: fc.integer({ min: -TOLERANCE_MS, max: TOLERANCE_MS }),
    timestampHeader: fc.constantFrom(undefined, "X-Timestamp"),
    format: fc.constantFrom("BODY" as const, "TIMESTAMP_DOT_BODY" as const),
  })
  .filter(({ format, timestampHeader }) => timestampHeader !== undefined || format === "BODY")
  .map(({ secret, body, algorithm, signaturePrefix, ageMs, timestampHeader, format }) => {
    const signsTimestamp = format === "TIMESTAMP_DOT_BODY";
    const timestamp = String(NOW - ageMs);
    const text = signsTimestamp ? Buffer.concat([Buffer.from(`${timestamp}.`), body]) : body;
    const digest = algorithm === "HmacSHA256" ? "sha256" : "sha512";
    const auth = {
      kind: "hmac" as const,
      secret: new Secret(secret),
      headerName: "X-Signature",
      algorithm,
      signaturePrefix,
      encoding: "hex" as const,
      timestampUnit: "ms" as const,
      ...(timestampHeader === undefined ? {} : { timestampHeader }),
      timestampTolerance: TOLERANCE_MS,
      signaturePayloadFormat: format,
    };
    return { auth, body, timestamp, signsTimestamp, signature: createHmac(digest, secret).update(text).digest() };
  });

/** @returns why the request is refused; null when it passes */
function refusal({ auth, body, signature, timestamp }: Signed, hex = signature.toString("hex")): string | null {
  const headers = { "x-signature": `${auth.signaturePrefix}${hex}`, "x-timestamp": timestamp };
  return createVerifier(auth, clock).refusal({ headers }, body);
}

function withFlippedBit(bytes: Buffer, bit: number): Buffer {
  const copy = Buffer.from(bytes);
  const at = Math.floor(bit / 8) % copy.length;
  copy[at] = (copy[at] ?? 0) ^ (1 << (bit % 8));
  return copy;
}

describe("an HMAC", () => {
  test("that node:crypto makes passes, in any letter case", () => {
    fc.assert(
      fc.property(signedRequests, fc.boolean(), (request, upper) => {
        const hex = request.signature.toString("hex");
        expect(refusal(request, upper ? hex.toUpperCase() : hex)).toBeNull();
      }),
      settings(),
    );
  });

  test("is refused when a bit of the body, the signature or the signed time is another", () => {
    fc.assert(
      fc.property(signedRequests, fc.nat(), (request, bit) => {
        expect(refusal({ ...request, signature: withFlippedBit(request.signature, bit) })).not.toBeNull();
        if (request.body.length > 0) {
          expect(refusal({ ...request, body: withFlippedBit(request.body, bit) })).not.toBeNull();
        }
        if (request.signsTimestamp) {
          const timestamp = withFlippedBit(Buffer.from(request.timestamp), bit).toString("latin1");
          expect(refusal({ ...request, timestamp })).not.toBeNull();
        }
      }),
      settings(),
    );
  });

  test("is refused when it is cut, made longer, or moved between time and body", () => {
    fc.assert(
      fc.property(
        signedRequests,
        fc.nat(),
        fc.string({ unit: fc.constantFrom("0", "f", " ", "g"), minLength: 1 }),
        (request, at, more) => {
          const hex = request.signature.toString("hex");
          expect(refusal(request, hex.slice(0, at % hex.length))).not.toBeNull();
          expect(refusal(request, hex + more)).not.toBeNull();
          if (request.signsTimestamp) {
            const body = Buffer.concat([Buffer.from(`${request.timestamp.slice(-1)}.`), request.body]);
            expect(refusal({ ...request, timestamp: request.timestamp.slice(0, -1), body })).not.toBeNull();
          }
        },
      ),
      settings(),
    );
  });

  test("is refused when its time is out of tolerance by any amount, and with another secret", () => {
    const outside = fc.integer({ min: TOLERANCE_MS + 1, max: NOW });
    fc.assert(
      fc.property(signedRequests, outside, fc.boolean(), secrets, (request, difference, early, other) => {
        if (request.auth.timestampHeader !== undefined) {
          const timestamp = String(NOW + (early ? -difference : difference));
          expect(refusal({ ...request, timestamp })).toMatch(/X-Timestamp/);
        }
        if (other === request.auth.secret?.reveal()) return;
        const reason = refusal({ ...request, auth: { ...request.auth, secret: new Secret(other) } });
        expect(reason).toBe("the signature in the X-Signature header is wrong");
      }),
      settings(),
    );
  });
});

describe("a bearer token and an API key", () => {
  test("pass when they are the configured ones, byte for byte, and no other does", () => {
    fc.assert(
      fc.property(secrets, secrets, fc.constantFrom("Bearer", "bearer", "BEARER"), (secret, other, scheme) => {
        const onTheWire = (text: string) => Buffer.from(text, "utf8").toString("latin1");
        const bearer = createVerifier({ kind: "bearer", token: new Secret(secret) }, clock);
        const apiKey = createVerifier({ kind: "api-key", key: new Secret(secret), headerName: "X-Key" }, clock);
        for (const text of [secret, other]) {
          const passes = text === secret;
          const received = onTheWire(text);
          expect(apiKey.refusal({ headers: { "x-key": received } }, Buffer.alloc(0)) === null).toBe(passes);
          // Of a token with a blank in front, or a line break, no header can be made.
          if (!/^ |[\r\n]/.test(text)) {
            expect(
              bearer.refusal({ headers: { authorization: `${scheme} ${received}` } }, Buffer.alloc(0)) === null,
            ).toBe(passes);
          }
        }
      }),
      settings(),
    );
  });
});
