import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { createRedactor, KnownSecrets } from "../../src/core/redaction/redact.ts";
import { settings } from "./settings.ts";
import { anyText } from "./text.ts";

/** Making a redactor takes milliseconds. */
const RUNS = 250;

const MAX_LENGTH = 300;
/** Secrets from this length on are removed wherever they stand. */
const MIN_LENGTH = 4;

const noise = fc.oneof(
  anyText(),
  fc.string({
    unit: fc.constantFrom("a", "b", " ", "\n", "\0", "\ud83d", "\ude00", ":", "/", "@", '"', "&", "=", "+", "%"),
  }),
  fc.constantFrom("authorization: Bearer ", "https://user:", '{"error":"', "Basic "),
);
/** What an operator might configure; blanks at the ends are no part of what is looked for, and asterisks are what it is replaced with. */
const secrets = fc
  .oneof(
    anyText({ minLength: MIN_LENGTH, maxLength: 30 }),
    fc.string({
      unit: fc.constantFrom(..."ab&<>'\"\\+/=% $", ..."{}.()[]|^?-~é\u{1F600}"),
      minLength: MIN_LENGTH,
      maxLength: 30,
    }),
    fc.string({ unit: fc.constantFrom("a", "b"), minLength: MIN_LENGTH, maxLength: 8 }),
  )
  .filter((secret) => inOneLine(secret).length >= MIN_LENGTH && !/[*…]/.test(secret));

/** How a text looks on one line; a secret is found in whatever way blanks and control characters stand in it. */
function inOneLine(text: string): string {
  const controls = /(?!\s)[\p{Cc}\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;
  return text.replaceAll(controls, "").replaceAll(/\s+/g, " ").trim();
}

/** The spellings that the contract names. */
const spellings: Readonly<Record<string, (secret: string) => string>> = {
  unchanged: (secret) => secret,
  "with control characters between": (secret) => [...secret].join("\0\u200e"),
  "in base64": (secret) => Buffer.from(secret).toString("base64"),
  "in base64 for URLs": (secret) => Buffer.from(secret).toString("base64url"),
  "percent-encoded": encodeURIComponent,
  "form-encoded": (secret) => new URLSearchParams({ x: secret }).toString().slice(2),
  "escaped for JSON": (secret) => JSON.stringify(secret).slice(1, -1),
  "escaped for HTML": (secret) =>
    secret
      .replaceAll("&", "&amp;")
      .replaceAll("<", "&lt;")
      .replaceAll(">", "&gt;")
      .replaceAll('"', "&quot;")
      .replaceAll("'", "&#39;"),
};

describe("a reason", () => {
  test("never holds a secret in any of its spellings, whatever surrounds it", () => {
    // One redactor for all spellings: making it is what takes the time.
    fc.assert(
      fc.property(
        secrets,
        fc.array(secrets, { maxLength: 3 }),
        fc.array(noise, { minLength: 1, maxLength: 4 }),
        (secret, others, texts) => {
          const around = inOneLine(texts.join("***"));
          const forms = Object.entries(spellings).map(([spelling, spell]) => ({ spelling, spelt: spell(secret) }));
          fc.pre(
            forms.map(({ spelt }) => inOneLine(spelt)).every((s) => s.length >= MIN_LENGTH && !around.includes(s)),
          );
          const redact = createRedactor(new KnownSecrets([secret, ...others]), MAX_LENGTH);
          const left = forms.filter(({ spelt }) => redact(texts.join(spelt) + spelt).includes(inOneLine(spelt)));
          expect(left).toEqual([]);
        },
      ),
      settings(RUNS),
    );
  });

  test("holds no secret inside a longer base64 text", () => {
    fc.assert(
      fc.property(secrets, fc.string({ maxLength: 12 }), fc.string({ maxLength: 12 }), (secret, before, after) => {
        fc.pre(Buffer.byteLength(secret) >= 8 && inOneLine(secret) === secret);
        const cleaned = createRedactor(
          new KnownSecrets([secret]),
          MAX_LENGTH,
        )(`Basic ${Buffer.from(before + secret + after).toString("base64")}`);
        const left = [...cleaned.matchAll(/[\w+/]+/g)].map(([text]) => Buffer.from(text, "base64").toString("latin1"));
        expect(left.filter((text) => text.includes(Buffer.from(secret).toString("latin1")))).toEqual([]);
        expect(cleaned).toContain("***");
      }),
      settings(RUNS),
    );
  });

  test("holds nothing of a secret that another secret is a part of", () => {
    fc.assert(
      fc.property(secrets, fc.nat(), fc.nat(), (secret, from, length) => {
        const start = from % (secret.length - MIN_LENGTH + 1);
        const part = secret.slice(start, start + MIN_LENGTH + (length % secret.length));
        fc.pre(inOneLine(secret) === secret && !secret.includes("¦"));
        expect(createRedactor(new KnownSecrets([part, secret]), MAX_LENGTH)(`¦${secret}¦`)).toBe("¦***¦");
      }),
      settings(RUNS),
    );
  });

  test("is one line of bounded length without control characters and halves of surrogate pairs", () => {
    fc.assert(
      fc.property(
        fc.array(secrets, { maxLength: 3 }),
        fc.array(noise),
        fc.nat({ max: 50 }),
        (some, texts, maxLength) => {
          const cleaned = createRedactor(new KnownSecrets(some), maxLength)(texts.join(some[0] ?? ""));
          expect(cleaned.length).toBeLessThanOrEqual(Math.max(1, maxLength));
          expect(cleaned).not.toMatch(/[\p{Cc}\p{Zl}\p{Zp}\p{Surrogate}]/u);
        },
      ),
      settings(RUNS),
    );
  });

  test("holds nothing telling of a secret that a long text is cut in", () => {
    fc.assert(
      fc.property(
        secrets,
        fc.integer({ min: -40, max: 40 }),
        fc.constantFrom("x", "\0", " ", "-\n"),
        (secret, shift, filler) => {
          const beginning = inOneLine(secret).slice(0, MIN_LENGTH);
          fc.pre(!inOneLine(filler.repeat(10)).includes(beginning) && secret.trimStart() === secret);
          const text = filler.repeat(70_000).slice(0, 65_536 + shift) + secret.repeat(3);
          expect(createRedactor(new KnownSecrets([secret]), 100_000)(text)).not.toContain(beginning);
        },
      ),
      settings(50),
    );
  });
});
