import { test } from "@jest/globals";
import fc from "fast-check";
import { requestUrl } from "../../src/adapters/destinations/http/kind.ts";
import { compilePath, messageFields } from "../../src/core/delivery/template.ts";
import { PublishError } from "../../src/model/errors.ts";
import { PARSER_RUNS, settings } from "./settings.ts";
import { anyText } from "./text.ts";

const PIECES = [
  "..",
  ".",
  "%2e",
  "/",
  "\\",
  "?",
  "#",
  "@",
  ":",
  "\r\n",
  "\t",
  "\0",
  "%",
  " ",
  "a",
  "ä",
  "\u{1F600}",
  "\ud800",
  "{{",
  "}}",
];
const values = fc
  .array(fc.oneof(fc.constantFrom(...PIECES), anyText({ maxLength: 3 })), { maxLength: 6 })
  .map((all) => all.join(""));

/** Whether a server that decodes a value before it resolves segments would find one to resolve. */
const hasDots = (value: string) => value.split(/[/\\]/).some((segment) => /^(?:\.|%2e){1,2}$/i.test(segment));

test("no value of a message leaves its place in the URL", () => {
  const path = compilePath("/v1/{{ key }}/x-{{ payload.id }}?k={{ key }}&n=1");
  fc.assert(
    fc.property(values, values, (key, id) => {
      const fields = messageFields({ topic: "t", key, aggregateType: null, payload: JSON.stringify({ id }) });
      let rendered = "";
      try {
        rendered = path?.render(fields) ?? "";
      } catch (error) {
        return error instanceof PublishError && (key === "" || id === "" || hasDots(key) || hasDots(`x-${id}`));
      }
      if (hasDots(key) || hasDots(`x-${id}`)) return false;
      const url = requestUrl("https://receiver.example/hooks", rendered);
      const [first, second] = [key, `x-${id}`].map((text) =>
        encodeURIComponent(text.replace(/\p{Surrogate}/gu, "\ufffd")),
      );
      return (
        /^[\x21-\x7e]*$/.test(rendered) &&
        url.href === `https://receiver.example/hooks/v1/${first}/${second}?k=${first?.replaceAll("'", "%27")}&n=1`
      );
    }),
    settings(PARSER_RUNS),
  );
});
