import { createRequire } from "node:module";
import { describe, expect, test } from "@jest/globals";
import { createProviderCheck } from "../../../../src/adapters/sources/http/kind.ts";
import type { ProviderAuth } from "../../../../src/adapters/sources/http/schema.ts";
import { read } from "../../../support/repository.ts";
import { URL_OF_SOURCE } from "./senders.ts";
import { authOf } from "./source.ts";

/**
 * The providers' own libraries sign what the sources verify. A library runs here when it is among the development
 * dependencies, or installed otherwise.
 */

const NOW = Date.UTC(2026, 0, 2, 3, 4, 5);
const BODY = '{"id":"evt_1","type":"order.paid","data":{"name":"Zoë","total":12.50}}';
const require = createRequire(import.meta.url);
const { devDependencies } = JSON.parse(read("package.json")) as {
  readonly devDependencies: Readonly<Record<string, string>>;
};

function describeWith(library: string, body: () => void): void {
  let isInstalled = true;
  try {
    require.resolve(library);
  } catch {
    isInstalled = false;
  }
  const runs = isInstalled || library in devDependencies;
  (runs ? describe : describe.skip)(`what ${library} signs`, body);
}

interface Request {
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly url?: string;
}

/** The request passes with its secret, new or old; with no other, and not when a byte of the body is another. */
function expectVerified(provider: string, secret: string, other: string, request: Request, settings = {}): void {
  const refusal = (body: string, ...secrets: readonly string[]) => {
    const auth: ProviderAuth = { ...authOf({ name: provider }, ...secrets), ...settings };
    return createProviderCheck(auth, { now: () => NOW }).refusal({ method: "POST", ...request }, Buffer.from(body));
  };
  const { body = BODY } = request;
  expect(refusal(body, secret)).toBeNull();
  expect(refusal(body, secret, other)).toBeNull();
  expect(refusal(body, other, secret)).toBeNull();
  expect(refusal(body, other)).toMatch(/ is wrong$/);
  expect(refusal(body.replace("1", "2"), secret)).toMatch(/ is wrong$/);
}

const whsec = (text: string) => `whsec_${Buffer.from(text.padEnd(32, ".")).toString("base64")}`;
const [SECRET, OTHER] = [whsec("one"), whsec("two")];

interface StandardWebhook {
  sign(id: string, time: Date, payload: string): string;
}

describeWith("standardwebhooks", () => {
  test.each(["standard-webhooks", "svix", "gitlab"])("passes at the provider %s", async (provider) => {
    const { Webhook } = await import("standardwebhooks" as string);
    const webhook: StandardWebhook = new Webhook(SECRET);
    const headers = {
      "webhook-id": "msg_1",
      "webhook-timestamp": String(NOW / 1000),
      "webhook-signature": webhook.sign("msg_1", new Date(NOW), BODY),
    };
    expectVerified(provider, SECRET, OTHER, { headers });
  });
});

describeWith("svix", () => {
  test.each(["standard-webhooks", "svix"])("passes at the provider %s", async (provider) => {
    const { Webhook } = await import("svix" as string);
    const webhook: StandardWebhook = new Webhook(SECRET);
    const headers = {
      "svix-id": "msg_1",
      "svix-timestamp": String(NOW / 1000),
      "svix-signature": webhook.sign("msg_1", new Date(NOW), BODY),
    };
    expectVerified(provider, SECRET, OTHER, { headers });
  });
});

describeWith("stripe", () => {
  test("passes at the provider stripe", async () => {
    const { default: Stripe } = await import("stripe" as string);
    const header: string = new Stripe("sk_test_1").webhooks.generateTestHeaderString({
      payload: BODY,
      secret: SECRET,
      timestamp: NOW / 1000,
    });
    expectVerified("stripe", SECRET, OTHER, { headers: { "stripe-signature": header } });
  });
});

describeWith("@octokit/webhooks", () => {
  test("passes at the provider github", async () => {
    const { Webhooks } = await import("@octokit/webhooks" as string);
    const signature: string = await new Webhooks({ secret: SECRET }).sign(BODY);
    expectVerified("github", SECRET, OTHER, { headers: { "x-hub-signature-256": signature } });
  });
});

describeWith("twilio", () => {
  const query = "?foo=1&bar=%C3%A9";

  async function library() {
    return (await import("twilio/lib/webhooks/webhooks.js" as string)) as {
      getExpectedTwilioSignature(token: string, url: string, form: Readonly<Record<string, string>>): string;
      getExpectedBodyHash(body: string): string;
    };
  }

  test.each([URL_OF_SOURCE, URL_OF_SOURCE.replace(".com/", ".com:443/"), "https://hooks.example.com:8443/in"])(
    "passes at the provider twilio, a form for %s",
    async (url) => {
      const form = { To: "+18005551212", Body: "a&b=é + %", Digits: "1", A: "" };
      const signature = (await library()).getExpectedTwilioSignature(SECRET, url + query, form);
      const headers = {
        "content-type": "application/x-www-form-urlencoded; charset=UTF-8",
        "x-twilio-signature": signature,
      };
      const body = new URLSearchParams(form).toString();
      expectVerified("twilio", SECRET, OTHER, { headers, body, url: `/in${query}` }, { url });
    },
  );

  test("passes at the provider twilio, JSON", async () => {
    const { getExpectedBodyHash, getExpectedTwilioSignature } = await library();
    const url = `?bodySHA256=${getExpectedBodyHash(BODY)}`;
    const signature = getExpectedTwilioSignature(SECRET, URL_OF_SOURCE + url, {});
    const headers = { "content-type": "application/json", "x-twilio-signature": signature };
    const auth = { ...authOf({ name: "twilio" }, SECRET), url: URL_OF_SOURCE };
    const check = createProviderCheck(auth, { now: () => NOW });
    expect(check.refusal({ headers, url }, Buffer.from(BODY))).toBeNull();
    expect(check.refusal({ headers, url }, Buffer.from(`${BODY} `))).toContain("bodySHA256");
    expect(check.refusal({ headers, url: "" }, Buffer.from(BODY))).toContain("bodySHA256");
  });
});
