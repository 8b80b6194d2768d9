import { expect, test } from "@jest/globals";
import { headersNotStored } from "../../../../src/http/inbox.ts";
import { isCredentialHeader } from "../../../../src/model/text.ts";

/** Names under which products send credentials. */
const CREDENTIALS = `
  Authorization Proxy-Authorization X-Forwarded-Authorization X-Original-Authorization X-Amz-Authorization Authentication
  Cookie Set-Cookie Cookie2 X-Session-Id X-Session-Token Session-Token
  X-API-Key Api-Key ApiKey X-ApiKey DD-API-KEY DD-APPLICATION-KEY X-Rapidapi-Key X-Goog-Api-Key X-Algolia-API-Key
  X-Parse-REST-API-Key X-Parse-Master-Key X-Functions-Key Ocp-Apim-Subscription-Key aeg-sas-key aeg-sas-token AccessKey
  X-Auth X-Auth-Key X-Auth-Token X-Tableau-Auth X-Sentry-Auth X-Access-Token X-Refresh-Token X-Id-Token X-User-Token
  X-Gitlab-Token Private-Token Job-Token Circle-Token X-Vault-Token X-Consul-Token X-Figma-Token X-Plex-Token X-Pm-Token
  X-Shopify-Access-Token X-Postmark-Server-Token X-Telegram-Bot-Api-Secret-Token X-Goog-Channel-Token X-Line-ChannelToken
  X-Amz-Security-Token X-Amzn-Oidc-Accesstoken X-Amzn-Oidc-Data X-MS-Token-AAD-Access-Token X-MS-Token-AAD-Id-Token
  Cf-Access-Jwt-Assertion X-Goog-Iap-Jwt-Assertion CF-Access-Client-Secret X-Forwarded-Access-Token X-JWT X-Jwt-Token
  X-Csrf-Token X-XSRF-Token X-CSRFToken X-Hasura-Admin-Secret X-Webhook-Secret X-Client-Secret X-Rapidapi-Proxy-Secret
  X-Password X-Passwd X-User-Pwd X-Passphrase X-Amz-Credential X-GitHub-OTP X-License-Key X-Insert-Key X-Honeycomb-Team X-WSSE DPoP
  X-Bearer X-Pass X-Encryption-Key X-MS-Encryption-Key X-Amz-Server-Side-Encryption-Customer-Key X-Signing-Key
`;

/** Names that look alike, and what messages are sent with every day. */
const INNOCENT = `
  Accept Accept-Encoding Content-Type Content-Length Content-Digest Date Host Origin Referer User-Agent Via Forwarded Range ETag
  If-Match Idempotency-Key X-Idempotency-Key X-Message-Id X-Request-Id X-Correlation-Id Traceparent Tracestate Baggage X-B3-TraceId
  X-Forwarded-For X-Forwarded-Proto X-Forwarded-User X-Forwarded-Client-Cert X-Real-IP X-Author X-Authored-By X-Authority
  X-Auth-User X-Auth-Request-Email X-Api-Version X-Api-Key-Id X-Token-Count X-Ratelimit-Remaining-Tokens X-Partition-Key
  X-Routing-Key X-Cache-Key Surrogate-Key X-Public-Key X-Primary-Key X-Key Sec-WebSocket-Key Sec-WebSocket-Protocol
  X-Event-Type X-Aggregate-Id X-Tenant X-Passenger X-Keyboard WWW-Authenticate
  X-GitHub-Event X-GitHub-Delivery X-Hub-Signature-256 Stripe-Signature X-Shopify-Hmac-Sha256 X-Shopify-Topic X-Slack-Signature
  X-Slack-Request-Timestamp X-Amz-Date X-Amz-Content-Sha256 X-Amz-Sns-Message-Type Ce-Id Ce-Source Ce-Type Ce-Specversion
  Svix-Id Svix-Timestamp Svix-Signature X-Twilio-Signature X-Gitlab-Event X-Gitlab-Event-UUID
`;

const list = (names: string): readonly string[] => names.trim().split(/\s+/);

test.each(list(CREDENTIALS))("%s carries a credential", (name) => {
  expect(isCredentialHeader(name.toLowerCase())).toBe(true);
});

test.each(list(INNOCENT))("%s carries none", (name) => {
  expect(isCredentialHeader(name.toLowerCase())).toBe(false);
});

test("names of the configuration count in any letter case", () => {
  expect(headersNotStored(undefined, ["X-My-Signature"])("x-my-signature")).toBe(true);
});
