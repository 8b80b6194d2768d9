import { describe, expect, test } from "@jest/globals";
import { createRedactor, KnownSecrets } from "../../../../src/core/redaction/redact.ts";
import { SECRET_FORMS } from "../../../support/secretForms.ts";

/** With every character that some encoding escapes, one outside ASCII and one outside the basic plane. */
const SECRETS = {
  password: `p@ss w/ö&"<rd>\\+='ü😀x`,
  token: "tok+en/42==",
  "a path-like token": "S3cr3t/abc+def==(!*)",
  "an escape-like password": "a%41&amp;\\u0041+b\\\\n",
} as const;

describe.each(Object.entries(SECRETS))("%s", (_name, secret) => {
  const redact = createRedactor(new KnownSecrets([secret]), 10_000);

  test.each(Object.entries(SECRET_FORMS))("is masked %s", (_form, write) => {
    expect(redact(`before <${write(secret)}> after`)).toBe("before <***> after");
  });

  test.each(Object.entries(SECRET_FORMS))("leaves nothing if a text is cut in it: %s", (_form, write) => {
    const secrets = new KnownSecrets([secret]);
    const written = `~~~~ ${write(secret)}`;
    for (let length = 5; length < written.length; length++) {
      const masked = secrets.mask(written.slice(0, length), true);
      expect(masked.trim()).toMatch(/^~~~~ ?(?:\*\*\*=*)?(?:\\[nr]?)*$/);
    }
  });
});

test.each([0, 1, 2])("a secret is masked in a longer base64 text of several lines, %s bytes further on", (shift) => {
  const secret = SECRETS.password;
  const encoded = Buffer.from(`${"x".repeat(60 + shift)}${secret}${"y".repeat(50)}`).toString("base64");
  const lines = encoded.match(/.{1,76}/g) ?? [];
  const masked = new KnownSecrets([secret]).mask(lines.join("\r\n"), false);
  const [before = "", after = "", ...others] = masked.replace(/\s/g, "").split("***");
  // What is left are whole characters of the neighbours, and at both edges a character with some bits of the secret.
  expect(others).toEqual([]);
  expect(before).toBe(encoded.slice(0, Math.ceil(((60 + shift) * 8) / 6)));
  expect(after.length).toBeLessThanOrEqual(
    encoded.length - before.length - Math.floor((Buffer.byteLength(secret) * 8) / 6) + 1,
  );
});

test.each(Object.values(SECRETS))("%s is masked in a body of JSON, or of a form, that came as base64", (secret) => {
  const secrets = new KnownSecrets([secret]);
  for (const body of [JSON.stringify({ a: 1, key: secret }), new URLSearchParams({ a: "1", key: secret }).toString()]) {
    const encoded = Buffer.from(body).toString("base64");
    const before = Buffer.from(body.slice(0, body.indexOf("key") + 4))
      .toString("base64")
      .replace(/.?=*$/, "");
    const masked = secrets.mask(encoded, false);
    expect(masked.startsWith(before)).toBe(true);
    // What stands around it, and a character at each edge.
    expect(masked.length).toBeLessThan(Math.ceil(((body.indexOf("key") + 10) * 4) / 3) + "***".length);
  }
});

describe("a secret that may be a word, in our own errors", () => {
  const secrets = new KnownSecrets(["svc", "test", "orders", "database"]);

  test.each([
    "the table outbox_audit is missing: run svc migrate",
    "ended early, after 1 row was moved: repeat it with --finished-before 1 for the rest",
    "svc: the latest database was left out",
    "svc transform test: orders, database and svc",
    "orders.created: svc replay",
  ])("is left in %s", (text) => {
    expect(secrets.mask(text, false, true)).toBe(text);
  });

  test.each([
    ["password=svc", "password=***"],
    ["password=svc sslmode=require", "password=*** sslmode=require"],
    ["connecting to postgres://u:svc@db/orders failed", "connecting to postgres://u:***@db/orders failed"],
    ['refused {"key":"orders","n":1}', 'refused {"key":"***","n":1}'],
    ['refused {\\"key\\":\\"orders\\"}', 'refused {\\"key\\":\\"***\\"}'],
    ["X-Key: database", "X-Key: ***"],
    ["a=1&key=test&b=2", "a=1&key=***&b=2"],
    ["?key%3Dtest%26b", "?key%3D***%26b"],
    ["svc", "***"],
    ["the key &quot;test&quot; is unknown", "the key &quot;***&quot; is unknown"],
  ])("is masked in %s", (text, masked) => {
    expect(secrets.mask(text, false, true)).toBe(masked);
  });

  test("is masked in base64, and any other secret everywhere", () => {
    const encoded = Buffer.from("database").toString("base64");
    expect(secrets.mask(`got ${encoded}`, false, true)).toBe("got ***");
    expect(new KnownSecrets(["svc4migrate"]).mask("run svc4migrate now", false, true)).toBe("run *** now");
  });
});

test("a long secret is masked as one, escaped or not, and so is what a cut text has of it", () => {
  const line = "MIIEvQ/IBADAN+Bgkqhki/G9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7+VJTUt9Us8";
  const secret = `-----BEGIN PRIVATE KEY-----\n${`${line}\n`.repeat(26)}-----END PRIVATE KEY-----\n`.trim();
  const secrets = new KnownSecrets([secret]);
  for (const written of [secret, JSON.stringify(secret).slice(1, -1), encodeURIComponent(secret)]) {
    expect(secrets.mask(`<${written}>`, false)).toBe("<***>");
    expect(secrets.mask(`<${written.slice(0, 1000)}`, true)).toMatch(/^<\*\*\*$/);
  }
});

test.each(["\\", "\\n", "\\u0000", "%25", "&amp;", '"', " \n", "a"])(
  "a secret of many %j is sought in linear time",
  (unit) => {
    for (const repeated of ['"', "\\", "  \\n", "%25", "&amp;", "+  +", "\n\\n", "\0\\u0000", "a"]) {
      const secrets = new KnownSecrets([`${repeated.repeat(50)}"`]);
      expect(secrets.mask(unit.repeat(4000), true).length).toBeLessThanOrEqual(4000 * unit.length);
    }
  },
);

describe("known secrets", () => {
  test("that come up later are masked until they are forgotten", () => {
    const secrets = new KnownSecrets(["configured"]);
    const forget = secrets.add("later-token");
    const forgetTwin = secrets.add("later-token");
    expect(secrets.mask("configured later-token", false)).toBe("*** ***");
    forget();
    forget();
    expect(secrets.mask("later-token", false)).toBe("***");
    forgetTwin();
    expect(secrets.mask("configured later-token", false)).toBe("*** later-token");
  });

  test("that overlap leave nothing of each other", () => {
    expect(new KnownSecrets(["abcdefgh", "fghijklm"]).mask("-abcdefghijklm-", false)).toBe("-***-");
  });

  test("leave a text alone that holds none of them", () => {
    const text = 'C:\\new\\temp 100%25 &amp; &#x; \\u12 %zz "a+b" \\x4 \\777 &unknown; \ud83d';
    expect(new KnownSecrets(["some-secret"]).mask(text, false)).toBe(text);
  });

  test("are found in characters that nobody sees", () => {
    expect(new KnownSecrets(["topsecret"]).mask("<top\u200bsec\u200bre\u0000t>", false)).toBe("<***>");
  });
});
