import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import {
  messageFields,
  parseAddressTemplate,
  parseRecordKeyTemplate,
  parseRoutingKeyTemplate,
  topicParts,
} from "../../src/core/delivery/template.ts";
import { settings } from "./settings.ts";
import { anyText } from "./text.ts";

/** Text with braces everywhere, in and out of placeholders. */
const templates = fc
  .array(
    fc.constantFrom(
      "{",
      "}",
      "{{",
      "}}",
      " ",
      "a",
      ".",
      "topic",
      "key",
      "eventType",
      "source",
      "payload.a",
      "{{ topic }}",
    ),
    {
      maxLength: 10,
    },
  )
  .map((parts) => parts.join(""));
const texts = fc.oneof(fc.constantFrom("", "{{ topic }}", "{{", "}}", " a "), anyText());

/** The oracle: the first closing braces with opening ones before them, the nearest ones; then the rest. */
function substitute(template: string, textFor: (name: string) => string): string {
  for (let close = 2; close < template.length; close += 1) {
    if (!template.startsWith("}}", close)) continue;
    for (let open = close - 2; open >= 0; open -= 1) {
      if (!template.startsWith("{{", open)) continue;
      const value = textFor(template.slice(open + 2, close).trim());
      return template.slice(0, open) + value + substitute(template.slice(close + 2), textFor);
    }
  }
  return template;
}

function namesIn(template: string): readonly string[] {
  const names: string[] = [];
  substitute(template, (name) => {
    names.push(name);
    return "";
  });
  return names;
}

describe("a topic template", () => {
  test("renders what plain substitution gives, trimmed, or is refused for its first unknown name", () => {
    fc.assert(
      fc.property(templates, texts, fc.option(texts), (text, source, eventType) => {
        const unknown = namesIn(text).find((name) => name !== "source" && name !== "eventType");
        if (unknown !== undefined) {
          expect(() => topicParts(text, source)).toThrow(`unknown placeholder {{ ${unknown} }}`);
          return;
        }
        const parts = topicParts(text, source);
        const values: Readonly<Record<string, string>> = { source, eventType: eventType ?? "" };
        const expected = substitute(text, (name) => values[name] ?? "").trim();
        expect(parts.join(eventType ?? "").trim()).toBe(expected);
        expect(parts.length - 1).toBe(namesIn(text).filter((name) => name === "eventType").length);
      }),
      settings(),
    );
  });
});

const columns = fc.record({ topic: texts, key: fc.option(texts), aggregateType: fc.option(texts) });

describe("a routing key template", () => {
  test("renders columns unchanged, and unknown names as the default; an address template refuses those", () => {
    fc.assert(
      fc.property(templates, columns, texts, (text, row, missing) => {
        const fields = messageFields({ ...row, payload: '{"a":"found"}' });
        const known: Readonly<Record<string, string | null>> = { ...row, "payload.a": "found" };
        const expected = substitute(text, (name) => known[name] ?? missing);
        expect(parseRoutingKeyTemplate(text).render(fields, missing)).toBe(expected);
        const onlyKey: Readonly<Record<string, string | null>> = { topic: row.topic, key: row.key };
        const recordKey = substitute(text, (name) => onlyKey[name] ?? missing);
        expect(parseRecordKeyTemplate(text).render(fields, missing)).toBe(recordKey);

        const unknown = namesIn(text).find(
          (name) => !Object.hasOwn(row, name) && !/^(payload|data)(\.[^.]+)+$/s.test(name),
        );
        if (unknown === undefined) expect(parseAddressTemplate(text).render(fields, missing)).toBe(expected);
        else expect(() => parseAddressTemplate(text)).toThrow(`unknown placeholder {{ ${unknown} }}`);
      }),
      settings(),
    );
  });

  test("renders a field of any payload: text unchanged, all else as its JSON text", () => {
    fc.assert(
      fc.property(payloads, fc.nat(), fc.constantFrom("payload", "data"), texts, (payload, pick, root, missing) => {
        const places = placesIn(payload);
        const place = places[pick % Math.max(1, places.length)] ?? { names: ["a"], value: undefined };
        const fields = messageFields({ topic: "t", key: null, aggregateType: null, payload: JSON.stringify(payload) });
        const rendered = parseAddressTemplate(`{{ ${[root, ...place.names].join(".")} }}`).render(fields, missing);
        expect(rendered).toBe(textOf(place.value) ?? missing);
      }),
      settings(),
    );
  });

  test("finds nothing in a payload that is no object, or no JSON, and does not throw", () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.constantFrom("[1]", '"a"', "null", "1")), (payload) => {
        const fields = messageFields({ topic: "t", key: null, aggregateType: null, payload });
        expect(parseRoutingKeyTemplate("<{{ payload.none.at.all }}>").render(fields)).toBe("<>");
      }),
      settings(),
    );
  });
});

const memberNames = fc.oneof(
  fc.constantFrom("a", "b", "__proto__", "constructor", "order-id"),
  fc.string({ maxLength: 4 }),
);
const payloads = fc.letrec<{ value: unknown; object: object }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    fc.oneof(
      fc.constant(null),
      fc.boolean(),
      fc.integer(),
      fc.double({ noNaN: true, noDefaultInfinity: true }),
      fc.string(),
    ),
    tie("object"),
    fc.array(tie("value"), { maxLength: 3 }),
  ),
  object: fc.array(fc.tuple(memberNames, tie("value")), { maxLength: 4 }).map(Object.fromEntries),
})).object;

interface Place {
  readonly names: readonly string[];
  readonly value: unknown;
}

/** Every member that a placeholder can name, however deep. */
function placesIn(value: unknown, names: readonly string[] = []): readonly Place[] {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return [];
  return Object.entries(value)
    .filter(([name]) => /^[^.{}\s]+$/.test(name))
    .flatMap(([name, member]) => [{ names: [...names, name], value: member }, ...placesIn(member, [...names, name])]);
}

function textOf(value: unknown): string | undefined {
  if (value === null || value === undefined) return undefined;
  return typeof value === "string" ? value : JSON.stringify(value);
}
