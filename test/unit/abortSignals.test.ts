import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "@jest/globals";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const FORBIDDEN = /\bAbortSignal\s*\.\s*(?:any|timeout)\s*\(/;

/**
 * Node 20 holds the parts of a combined signal weakly: `AbortSignal.any([signal, AbortSignal.timeout(ms)])` never fires after a collection of the
 * memory, and a wait that relies on it lasts for ever.
 */
test("no signal is combined or timed by AbortSignal.any or AbortSignal.timeout", () => {
  const files = ["src", "roles", "test"].flatMap((top) =>
    readdirSync(path.join(ROOT, top), { recursive: true, encoding: "utf8" }).map((file) => path.join(top, file)),
  );
  const sources = files.filter((file) => file.endsWith(".ts"));
  expect(sources.length).toBeGreaterThan(100);
  const found = sources.filter((file) => FORBIDDEN.test(withoutComments(readFileSync(path.join(ROOT, file), "utf8"))));
  expect(found).toEqual([]);
});

function withoutComments(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/^\s*\/\/.*$/gm, "");
}
