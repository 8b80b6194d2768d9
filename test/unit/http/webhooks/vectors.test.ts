import { describe, expect, test } from "@jest/globals";
import { createProviderCheck } from "../../../../src/adapters/sources/http/kind.ts";
import type { ProviderAuth } from "../../../../src/adapters/sources/http/schema.ts";
import { authOf } from "./source.ts";

/** Requests that the providers publish in their documents or the tests of their libraries. */
interface Vector {
  readonly source: string;
  readonly provider: string;
  readonly settings?: Partial<ProviderAuth>;
  readonly secret: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly url?: string;
  readonly now?: number;
}

const VECTORS: readonly Vector[] = [
  {
    source: "GitHub, Validating webhook deliveries, Testing the webhook payload validation",
    provider: "github",
    secret: "It's a Secret to Everybody",
    headers: { "x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17" },
    body: "Hello, World!",
  },
  {
    source: "Slack, Verifying requests from Slack",
    provider: "slack",
    secret: "8f742231b10e8888abcd99yyyzzz85a5",
    headers: {
      "x-slack-request-timestamp": "1531420618",
      "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    },
    body: "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
    now: 1_531_420_618_000,
  },
  {
    source: "Standard Webhooks and Svix, tests of the libraries",
    provider: "svix",
    secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    headers: {
      "svix-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
      "svix-timestamp": "1614265330",
      "svix-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= v2,nothing",
    },
    body: '{"test": 2432232314}',
    now: 1_614_265_330_000,
  },
  {
    source: "Twilio, tests of twilio-node",
    provider: "twilio",
    settings: { url: "https://mycompany.com/myapp.php" },
    secret: "12345",
    headers: {
      "content-type": "application/x-www-form-urlencoded",
      "x-twilio-signature": "RSOYDt4T1cUTdK1PDd93/VVr8B8=",
    },
    body: "Digits=1234&CallSid=CA1234567890ABCDE&To=%2B18005551212&Caller=%2B14158675309&From=%2B14158675309",
    url: "/inbox/orders?foo=1&bar=2",
  },
  {
    source: "Twilio SendGrid, tests of sendgrid-nodejs",
    provider: "sendgrid",
    secret:
      "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEEDr2LjtURuePQzplybdC+u4CwrqDqBaWjcMMsTbhdbcwHBcepxo7yAQGhHPTnlvFYPAZFceEu/1FwCM/QmGUhA==",
    headers: {
      "x-twilio-email-event-webhook-signature":
        "MEUCIQCtIHJeH93Y+qpYeWrySphQgpNGNr/U+UyUlBkU6n7RAwIgJTz2C+8a8xonZGi6BpSzoQsbVRamr2nlxFDWYNH2j/0=",
      "x-twilio-email-event-webhook-timestamp": "1588788367",
    },
    body: '{"category":"example_payload","event":"test_event","message_id":"message_id"}',
    now: 1_588_788_367_000,
  },
  {
    source: "Adyen, tests of adyen-node-api-library",
    provider: "adyen",
    secret: "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056",
    headers: {},
    body: JSON.stringify({
      notificationItems: [
        {
          NotificationRequestItem: {
            pspReference: "7914073381342284",
            originalReference: "",
            merchantAccountCode: "TestMerchant",
            merchantReference: "TestPayment-1407325143704",
            amount: { value: 1130, currency: "EUR" },
            eventCode: "AUTHORISATION",
            success: "true",
            additionalData: { hmacSignature: "coqCmt/IZ4E3CzPvMY8zTjQVL5hYJUiBRg8UU+iCWo0=" },
          },
        },
      ],
    }),
  },
];

describe("a published request", () => {
  test.each(VECTORS.map((vector): [string, Vector] => [vector.source, vector]))("of %s passes", (_source, vector) => {
    const { provider, settings, secret, headers, body, url, now = 0 } = vector;
    const check = createProviderCheck({ ...authOf({ name: provider }, secret), ...settings }, { now: () => now });
    expect(check.refusal({ headers, url, method: "POST" }, Buffer.from(body))).toBeNull();
    expect(check.refusal({ headers, url, method: "POST" }, Buffer.from(body.replace(/[1e]/, "x")))).not.toBeNull();
  });
});
