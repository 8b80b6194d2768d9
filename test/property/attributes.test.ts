import { createHash } from "node:crypto";
import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { type Extraction, httpPlan } from "../../src/core/receipt/attributes.ts";
import { JsonDocument } from "../../src/core/receipt/jsonDocument.ts";
import { extractAttributes } from "../support/extraction.ts";
import { settings } from "./settings.ts";
import { anyText } from "./text.ts";

const plan = httpPlan({ idempotencyKeyPath: "$.id", eventTypePath: "$.type", aggregateIdPath: "$.key" });

const texts = fc.oneof(
  anyText(),
  fc.string({ unit: fc.constantFrom("a", "\0", "\ud83d", "\ude00", "é"), maxLength: 6 }),
  fc
    .tuple(fc.constantFrom("x", "é"), fc.constantFrom(254, 255, 256, 1023, 1024, 1025))
    .map(([one, times]) => one.repeat(times)),
);
const scalars = fc.oneof(fc.constantFrom(null, "", true, false, [], {}, 0, -1.5, 1e300), fc.integer(), texts);
const documents = fc.record({ id: scalars, type: scalars, key: scalars }, { requiredKeys: [] });

/** Numbers as a sender may write them, with more digits than a double holds. */
const numberTexts = fc
  .tuple(
    fc.constantFrom("", "-"),
    fc.oneof(fc.constant(0n), fc.bigInt({ min: 0n, max: 99n }), fc.bigInt({ min: 10n ** 16n - 3n, max: 10n ** 20n })),
    fc.option(fc.string({ unit: fc.constantFrom("0", "1", "9"), minLength: 1, maxLength: 20 })),
    fc.option(fc.tuple(fc.constantFrom("e", "E"), fc.constantFrom("", "+", "-"), fc.nat({ max: 30 }))),
  )
  .map(
    ([sign, whole, fraction, exponent]) =>
      sign + whole + (fraction === null ? "" : `.${fraction}`) + (exponent?.join("") ?? ""),
  );
/** The same text but for one digit. */
const neighbours = fc.tuple(numberTexts, fc.nat(), fc.nat({ max: 9 })).map(([text, pick, digit]) => {
  const digits = [...text.matchAll(/[1-9]/g)].map(({ index }) => index);
  const at = digits[pick % Math.max(1, digits.length)];
  if (at === undefined) return [text, "7"] as const;
  const changed = text.slice(0, at) + (digit === 0 ? 1 : digit) + text.slice(at + 1);
  return [text, changed] as const;
});

function extract(json: string): Extraction {
  return extractAttributes(plan, { body: Buffer.from(json), document: new JsonDocument(json), headers: {} });
}

function textOf(value: unknown): string | null {
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  return typeof value === "string" && value !== "" ? value : null;
}

/** A value without a NUL and half surrogate pairs, of a length that every index can hold. */
const isUsable = (text: string | null, maxLength: number): boolean =>
  text === null || (text.length <= maxLength && !/[\0\p{Surrogate}]/u.test(text));

/**
 * The number that a decimal text stands for, exactly: digits without zeros at either end, and the place of the point.
 */
function exactly(text: string): string {
  const [, sign = "", whole = "", fraction = "", exponent = "0"] =
    /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text) ?? [];
  const digits = (whole + fraction).replace(/^0+/, "");
  const significant = digits.replace(/0+$/, "");
  return significant === ""
    ? "0"
    : `${sign}${significant}e${Number(exponent) - fraction.length + digits.length - significant.length}`;
}

describe("the attributes of an HTTP message", () => {
  test("are the scalars at their paths; what cannot be stored is refused, and only a key is stored as a digest", () => {
    fc.assert(
      fc.property(documents, (document) => {
        const extraction = extract(JSON.stringify(document));
        const [key, eventType, aggregateId] = [document.id, document.type, document.key].map(textOf) as (
          | string
          | null
        )[];
        const accepted =
          typeof key === "string" && isUsable(eventType ?? null, 1024) && isUsable(aggregateId ?? null, 1024);
        expect(extraction.kind).toBe(accepted ? "extracted" : "failed");
        if (extraction.kind === "failed") return;
        expect(extraction.attributes).toMatchObject({ eventType, aggregateId });
        const stored = extraction.attributes.idempotencyKey;
        if (isUsable(key ?? "", 255)) expect(stored).toBe(key);
        else expect(stored).toMatch(/^sha256:[0-9a-f]{64}$/);
        if (key !== null && key !== undefined && key.length > 255 && isUsable(key, key.length)) {
          expect(stored).toBe(`sha256:${createHash("sha256").update(key).digest("hex")}`);
        }
      }),
      settings(),
    );
  });

  test("tell two keys apart that are not the same text", () => {
    fc.assert(
      fc.property(texts, texts, (a, b) => {
        fc.pre(a !== b && a !== "" && b !== "");
        expect(keyOf(JSON.stringify(a))).not.toBe(keyOf(JSON.stringify(b)));
      }),
      settings(),
    );
  });

  test("tell two numbers apart that are not the same, however many digits they have", () => {
    fc.assert(
      fc.property(neighbours, ([a, b]) => {
        if (exactly(a) !== exactly(b)) expect(keyOf(a)).not.toBe(keyOf(b));
        else expect(keyOf(a)).toBe(keyOf(a));
      }),
      settings(5000),
    );
  });
});

function keyOf(json: string): string {
  const extraction = extract(`{"id":${json}}`);
  if (extraction.kind === "failed") throw new Error(`${json}: ${extraction.reason}`);
  return extraction.attributes.idempotencyKey;
}
