import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { evaluateJsonPath } from "../../src/core/receipt/jsonDocument.ts";
import { parseJsonPath } from "../../src/core/receipt/jsonPath.ts";
import { settings } from "./settings.ts";
import { anyText } from "./text.ts";

type Segment = string | number;

const names = fc.oneof(
  fc.constantFrom("a", "b", "order-id", "@type", "$ref", "__proto__", "constructor", "length", "0", "", "ü"),
  anyText({ maxLength: 5 }),
);
const documents = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    fc.constantFrom(null, true, 0, 1.5, "", "text"),
    fc.array(tie("value"), { maxLength: 3 }),
    fc.array(fc.tuple(names, tie("value")), { maxLength: 3 }).map(Object.fromEntries),
  ),
})).value;

/** A document with segments that mostly lead somewhere. */
const documentWithSegments = fc
  .tuple(
    documents,
    fc.array(fc.tuple(fc.nat(), fc.option(fc.oneof(names, fc.integer({ min: -4, max: 4 })), { freq: 4 }))),
  )
  .map(([document, steps]) => {
    const segments: Segment[] = [];
    let value: unknown = document;
    for (const [pick, stray] of steps) {
      const choices: readonly Segment[] = Array.isArray(value)
        ? value.flatMap((_, n) => [n, n - (value as unknown[]).length])
        : Object.getOwnPropertyNames(isObject(value) ? value : {});
      const segment = stray ?? choices[pick % Math.max(1, choices.length)];
      if (segment === undefined) break;
      segments.push(segment);
      value = walk(value, [segment]);
    }
    return { document, segments };
  });

/** How a path can be written, chosen segment by segment. */
const spellings = fc.infiniteStream(
  fc.record({ quote: fc.constantFrom("'", '"', "."), blanks: fc.constantFrom("", " ", "\n") }),
);

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The oracle: own members and items, one step after another. */
function walk(document: unknown, segments: readonly Segment[]): unknown {
  return segments.reduce((value: unknown, segment) => {
    if (typeof segment === "number") {
      if (!Array.isArray(value)) return undefined;
      return value[segment < 0 ? value.length + segment : segment];
    }
    return isObject(value) ? Object.getOwnPropertyDescriptor(value, segment)?.value : undefined;
  }, document);
}

function spell(segment: Segment, { quote, blanks }: { readonly quote: string; readonly blanks: string }): string {
  if (typeof segment === "number") return `[${blanks}${segment}${blanks}]`;
  if (quote === "." && /^[A-Za-z_$@][\w$@-]*$/.test(segment)) return `.${segment}`;
  const json = JSON.stringify(segment);
  const singleQuoted = `'${json.slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'")}'`;
  return `[${blanks}${quote === "'" ? singleQuoted : json}${blanks}]`;
}

describe("a definite JSONPath", () => {
  test("is read in any spelling, and finds what a walk finds", () => {
    fc.assert(
      fc.property(documentWithSegments, spellings, ({ document, segments }, spelling) => {
        const text = `$${segments.map((segment) => spell(segment, spelling.next().value)).join("")}`;
        const path = parseJsonPath(text);
        expect(path.segments).toEqual(segments);
        expect(evaluateJsonPath(path, document)).toBe(walk(document, segments));
      }),
      settings(),
    );
  });

  test("that could find several values, or has to be computed, is refused with its place", () => {
    const selectors = fc.constantFrom(
      "..a",
      ".*",
      "[*]",
      "[?@.a]",
      "[0:1]",
      "[:]",
      "[0,1]",
      "['a','b']",
      "[(1)]",
      "()",
    );
    fc.assert(
      fc.property(documentWithSegments, spellings, selectors, fc.nat(), ({ segments }, spelling, selector, at) => {
        const parts = segments.map((segment) => spell(segment, spelling.next().value));
        parts.splice(at % (parts.length + 1), 0, selector);
        expect(() => parseJsonPath(`$${parts.join("")}`)).toThrow(/is not a usable JSONPath: at character \d+, /);
      }),
      settings(),
    );
  });

  test("of any text is read, or refused with its place", () => {
    const texts = fc.string({ unit: fc.constantFrom(..."$.[]'\"\\ a-0*?:,(@u\u{1F600}\n") }).map((text) => `$${text}`);
    fc.assert(
      fc.property(fc.oneof(texts, anyText()), (text) => {
        try {
          expect(evaluateJsonPath(parseJsonPath(text), null)).toBe(text === "$" ? null : undefined);
        } catch (error) {
          expect((error as Error).message).toMatch(/is not a usable JSONPath: at character \d+, /);
        }
      }),
      settings(),
    );
  });
});
