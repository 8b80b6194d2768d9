import { createHmac } from "node:crypto";
import { afterEach, describe, expect, test } from "@jest/globals";
import { Webhook } from "standardwebhooks";
import { Webhook as SvixWebhook } from "svix";
import { createSigner, isBase64Key } from "../../../../../src/adapters/destinations/http/signing.ts";
import { KnownSecrets } from "../../../../../src/core/redaction/redact.ts";
import { createVerifier } from "../../../../../src/http/credentials.ts";
import { Secret } from "../../../../../src/model/secret.ts";
import { failOnLeaks } from "../../../../support/leaks.ts";
import { Receiver } from "../../../../support/receiver.ts";
import { Destinations } from "./setup.ts";

const [NEW, OLD] = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"] as const;
const secrets = [new Secret(NEW), new Secret(OLD)];
const HMAC = {
  scheme: "hmac",
  secrets,
  headerName: "X-Signature",
  algorithm: "HmacSHA256",
  signaturePrefix: "sha256=",
} as const;
const STANDARD = { ...HMAC, scheme: "standard-webhooks" } as const;
/** The message's body has text that is more than one byte in UTF-8. */
const BODY = '{"name":"Ä\u{1F600}"}';

const destinations = new Destinations();
afterEach(() => destinations.close());
failOnLeaks();

/** What the receiver of one message gets. */
async function sent(signing: NonNullable<Parameters<typeof destinations.create>[0]["signing"]>, headers = {}) {
  await using receiver = await Receiver.start();
  const clock = { now: () => Date.now(), monotonic: () => performance.now() };
  const known = new KnownSecrets();
  const { publish } = destinations.create({ baseUrl: receiver.url, signing }, { clock, secrets: known });
  await publish({ body: BODY, headers });
  const [request] = await receiver.received(1);
  const received = (request?.headers ?? {}) as Record<string, string>;
  return { body: String(request?.body), headers: received, known };
}

describe("the signature of standard-webhooks", () => {
  test("is verified by the scheme's own libraries, with the new secret and with the old one", async () => {
    const { body, headers } = await sent(STANDARD);
    for (const secret of [NEW, OLD]) {
      expect(new Webhook(secret).verify(body, headers)).toEqual(JSON.parse(BODY));
      expect(new SvixWebhook(secret).verify(body, headers)).toEqual(JSON.parse(BODY));
    }
    expect(headers["webhook-id"]).toBe("01980000-0000-7000-8000-000000000001");
    const other = new Webhook("whsec_AAAA9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    expect(() => other.verify(body, headers)).toThrow("No matching signature");
    expect(() => new Webhook(NEW).verify(`${body} `, headers)).toThrow("No matching signature");
  });

  test("cannot be replaced by headers of the row", async () => {
    const forged = { "Webhook-Signature": "v1,forged", "WEBHOOK-ID": "forged", "webhook-timestamp": "1" };
    const { body, headers } = await sent({ ...STANDARD, secrets: [secrets[0] as Secret] }, forged);
    expect(headers["webhook-signature"]).toMatch(/^v1,[A-Za-z0-9+/]{43}=$/);
    expect(new Webhook(NEW).verify(body, headers)).toEqual(JSON.parse(BODY));
  });

  test.each(["svix-id", "Svix-Timestamp", "svix-signature", "X-Signature"])(
    "is right beside the header %s of a message, which is not sent",
    async (name) => {
      const { body, headers } = await sent(STANDARD, { [name]: "1", "X-Other": "2" });
      for (const library of [new Webhook(NEW), new SvixWebhook(NEW)])
        expect(library.verify(body, headers)).toBeTruthy();
      const auth = { kind: "provider", provider: "svix", secrets, timestampTolerance: 300_000 } as const;
      expect(createVerifier(auth, Date).refusal({ headers }, Buffer.from(body))).toBeNull();
      expect(headers).toMatchObject({ "x-other": "2" });
      expect(headers).not.toHaveProperty(name.toLowerCase());
    },
  );

  test("is that of the standard's example", () => {
    const signer = createSigner(
      { ...STANDARD, secrets: [new Secret("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")] },
      { now: () => 1_614_265_330_999 },
      new KnownSecrets(),
    );
    const message = { id: "msg_p5jXN8AQM9LWM0D4loKWxJek" as never, body: '{"test": 2432232314}' };
    expect(signer(message)).toContainEqual({
      name: "webhook-signature",
      value: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    });
  });
});

describe("the signature of hmac", () => {
  const inbound = {
    kind: "hmac",
    secret: secrets[0] as Secret,
    headerName: "X-Signature",
    algorithm: "HmacSHA256",
    signaturePrefix: "sha256=",
    timestampTolerance: 300_000,
    encoding: "hex",
    timestampUnit: "ms",
    signaturePayloadFormat: "BODY",
  } as const;

  test("is verified by a source with the same keys", async () => {
    const { body, headers } = await sent({ ...HMAC, secrets: [secrets[0] as Secret] });
    const verifier = createVerifier(inbound, Date);
    expect(verifier.refusal({ headers }, Buffer.from(body))).toBeNull();
    expect(verifier.refusal({ headers }, Buffer.from(`${body} `))).toContain("is wrong");
  });

  test("covers the time if there is a header for it, in the other digest too", async () => {
    const keys = { algorithm: "HmacSHA512", signaturePrefix: "", timestampHeader: "X-Time" } as const;
    const { body, headers } = await sent({ ...HMAC, ...keys, secrets: [secrets[0] as Secret] });
    const verifier = createVerifier({ ...inbound, ...keys, signaturePayloadFormat: "TIMESTAMP_DOT_BODY" }, Date);
    expect(verifier.refusal({ headers }, Buffer.from(body))).toBeNull();
    expect(
      verifier.refusal({ headers: { ...headers, "x-time": String(Date.now() + 1) } }, Buffer.from(body)),
    ).toContain("is wrong");
  });

  test("is sent without the headers of another scheme that a message has", async () => {
    const foreign = ["webhook", "svix"].flatMap((names) =>
      ["id", "timestamp", "signature"].map((n) => `${names}-${n}`),
    );
    const { headers } = await sent(
      HMAC,
      Object.fromEntries([...foreign, "X-SIGNATURE"].map((name) => [name, "forged"])),
    );
    for (const name of foreign) expect(headers).not.toHaveProperty(name);
    expect(headers["x-signature"]).toMatch(/^sha256=/);
  });

  test("is there for each secret", async () => {
    const { body, headers } = await sent(HMAC);
    const of = (secret: string) => `sha256=${createHmac("sha256", secret).update(body).digest("hex")}`;
    expect(headers["x-signature"]).toBe(`${of(NEW)},${of(OLD)}`);
  });
});

test("no secret is shown in an error that a receiver echoes", async () => {
  const { known } = await sent(STANDARD);
  expect(known.mask(`got ${NEW} and ${OLD}`, false)).not.toMatch(/MfKQ|C2FV/);
});

test.each([
  ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", true],
  ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", true],
  ["QUI=", true],
  ["QUI", true],
  ["whsec_", false],
  ["", false],
  ["not base64!", false],
  ["A", false],
])("%j is a key in base64: %s", (text, is) => {
  expect(isBase64Key(text)).toBe(is);
});
