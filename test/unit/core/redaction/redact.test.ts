import { describe, expect, test } from "@jest/globals";
import { createRedactor, KnownSecrets } from "../../../../src/core/redaction/redact.ts";

const SECRET = 'p@ss w/ö&"<rd>\\+';

describe("secrets", () => {
  const redact = createRedactor(new KnownSecrets([SECRET]), 2000);
  const html = SECRET.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

  test.each([
    ["escaped for HTML", html],
    ["escaped for HTML with its quotes", html.replaceAll('"', "&quot;")],
    ["with control characters between", [...SECRET].join("\u0000")],
    ["over two lines", SECRET.replace(" ", "\r\n  ")],
  ])("are removed %s", (_how, spelling) => {
    expect(redact(`before [${spelling}] after`)).toBe("before [***] after");
  });

  test.each(["u", "us", "use", "user"])("are removed from Basic credentials of the user %s", (user) => {
    const encoded = Buffer.from(`${user}:${SECRET}:x`).toString("base64");
    const cleaned = redact(`got ${encoded}`);
    const left = Buffer.from(cleaned.replace("got ", "").replace("***", ""), "base64").toString("latin1");
    expect(cleaned).toContain("***");
    expect(left).not.toContain(SECRET.slice(0, 6));
    expect(left).not.toContain(SECRET.slice(-6));
  });

  test("a header value is removed without its scheme too", () => {
    expect(createRedactor(new KnownSecrets(["ApiKey k-123456789"]), 100)("unknown key k-123456789")).toBe(
      "unknown key ***",
    );
  });

  test("that are very short are removed only if they stand alone", () => {
    const short = createRedactor(new KnownSecrets(["a", "ös"]), 100);
    expect(short("password=a, bad ös; a banana lös")).toBe("password=***, bad ***; *** banana lös");
  });

  test("that are empty or blank change nothing", () => {
    expect(createRedactor(new KnownSecrets(["", "  "]), 100)("a b")).toBe("a b");
  });
});

describe("credentials that no configuration names", () => {
  const redact = createRedactor(new KnownSecrets([]), 2000);

  test.each([
    ["amqp://user:secret@host:5672/x", "amqp://***@host:5672/x"],
    ["see https://u:p@w@host/a and http://host/b@c", "see https://***@host/a and http://host/b@c"],
    ["authorization: Bearer abc.def", "authorization: Bearer ***"],
    ['{"Authorization":"Basic dXNlcjpwYXNz"}', '{"Authorization":"Basic ***"}'],
    ["authorization=token123", "authorization=***"],
    ["authorization failed", "authorization failed"],
  ])("%s", (text, cleaned) => {
    expect(redact(text)).toBe(cleaned);
  });
});

describe("text", () => {
  const redact = createRedactor(new KnownSecrets(["topsecret"]), 20);

  test("comes out on one line without control characters and halves of surrogate pairs", () => {
    expect(redact(" a\u0000b\u0007\r\n\tc\u001b[31m\u202ed \ud83d e \udc00\u2028f ")).toBe(
      "ab c[31md \ufffd e \ufffd f",
    );
  });

  test("is cut to the limit with an ellipsis", () => {
    expect(redact("x".repeat(20))).toBe("x".repeat(20));
    expect(redact("x".repeat(21))).toBe(`${"x".repeat(19)}…`);
  });

  test("is never cut through a surrogate pair", () => {
    expect(redact(`${"x".repeat(18)}😀😀`)).toBe(`${"x".repeat(18)}…`);
  });

  test("is cut after the secrets are removed", () => {
    expect(redact(`${"x".repeat(14)} topsecret`)).toBe(`${"x".repeat(14)} ***`);
  });

  test("is an ellipsis alone if there is room for one character", () => {
    expect(createRedactor(new KnownSecrets([]), 1)("abc")).toBe("…");
  });

  test("that is cut before a secret ends keeps nothing of the secret", () => {
    const wide = createRedactor(new KnownSecrets(["topsecret"]), 200_000);
    const cleaned = wide(`${"x".repeat(65_536 - 5)}topsecret`);
    expect(cleaned).toBe(`${"x".repeat(65_536 - 5)}…`);
  });

  test.each([
    ["schemes", "://".repeat(350_000)],
    ["user information without an end", `://${"a".repeat(1_000_000)}`],
    ["beginnings of a secret", "topsecre".repeat(125_000)],
    ["blanks", " \n".repeat(500_000)],
    ["authorization", "authorization:".repeat(70_000)],
  ])("of a megabyte of %s comes out within the time limit of a test", (_what, text) => {
    const secrets = new KnownSecrets(["topsecret", "a".repeat(200), `${"a".repeat(200)}b`]);
    expect(createRedactor(secrets, 2000)(text).length).toBeLessThanOrEqual(2000);
  });
});
