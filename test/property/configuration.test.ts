import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { inspectConfig, type LoadOptions, loadConfig } from "../../src/config/load.ts";
import { effectiveConfig, printConfig } from "../../src/config/print.ts";
import { ConfigError } from "../../src/model/errors.ts";
import { DATABASE, disk } from "../unit/config/support.ts";
import { MARKER, trees } from "./configuration/trees.ts";
import { validTrees } from "./configuration/valid.ts";
import { settings } from "./settings.ts";
import { anyText } from "./text.ts";

/** Runs of a property whose trees have some hundred nodes. */
const HEAVY_RUNS = 100;
/** Runs of a property that loads a configuration twice. */
const RUNS = 300;

const anyTrees = trees({ strayOneIn: 12, without: new Set(), always: new Set() });
/** Variables that exist, and that nearly do; none of them may be shown. */
const environments = fc.dictionary(
  fc.constantFrom(
    "SVC_DATABASE_PASSWORD",
    "SVC_DATABASE_PASWORD",
    "SVC_ADMIN_AUTH_TOKEN",
    "SVC_ADMIN_AUTH",
    "SVC_SOURCES_A_AUTH_SECRET",
    "SVC_DESTINATIONS_B_2_HEADERS_AUTHORIZATION",
    "SVC_SOURCES___PROTO___AUTH_KEY",
    "SVC___PROTO___X",
    "SVC_",
  ),
  fc.constantFrom(MARKER, "", `${MARKER}\n\u{1F600}`),
  // Each of them is compared with every variable there is.
  { maxKeys: 3 },
);

function optionsFor(text: string, env: Readonly<Record<string, string>> = {}): LoadOptions {
  return { env, file: "svc.yml", readFile: disk({ "svc.yml": text }) };
}

/** Loads; checks that nothing but a list of problems comes of a configuration that cannot be used, and that nothing says a secret. */
function check(text: string, env: Readonly<Record<string, string>> = {}): void {
  const { loaded, problems, warnings } = inspectConfig(optionsFor(text, env));
  expect(problems.length > 0).toBe(loaded === undefined);
  for (const { path, message } of [...problems, ...warnings]) {
    expect(path).not.toBe("");
    expect(message).not.toBe("");
    expect(path + message).not.toContain(MARKER);
  }
  try {
    expect(printConfig(loadConfig(optionsFor(text, env)))).not.toContain(MARKER);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    expect(error.problems).toEqual(problems);
  }
}

describe("a configuration", () => {
  test("of any tree loads, or is refused with every problem and its key path, and no secret is shown", () => {
    fc.assert(
      fc.property(anyTrees, environments, (tree, env) => check(JSON.stringify(tree), env)),
      settings(HEAVY_RUNS),
    );
  });

  test("of any JSON document loads, or is refused", () => {
    fc.assert(
      fc.property(fc.json(), (json) => check(json)),
      settings(RUNS),
    );
  });

  test("whose password was written without quotes never shows it, whatever YAML takes it for", () => {
    const punctuation = fc.string({ unit: fc.constantFrom(..."*!&@`%|>-{}[]\"'?#:,~<=. \t\\"), maxLength: 4 });
    fc.assert(
      fc.property(punctuation, punctuation, fc.constantFrom("database", "database.other"), (before, after, key) => {
        const password = `password: ${before}${MARKER}${after}`;
        const text = key === "database" ? DATABASE.replace(/password: .*/, password) : `${DATABASE}  ${password}\n`;
        check(`${text}server: { httpPort: 80 }\n`);
      }),
      settings(RUNS),
    );
  });

  test("of any text loads, or is refused", () => {
    const texts = fc.oneof(
      anyText(),
      fc
        .array(
          fc.constantFrom(
            "database",
            ":",
            " ",
            "\n",
            "  ",
            "- ",
            "{",
            "}",
            "[",
            "]",
            "&a",
            "*a",
            "<<",
            "!!str",
            "'",
            "|",
            "---\n",
            "a",
          ),
          { maxLength: 30 },
        )
        .map((parts) => parts.join("")),
      fc
        .tuple(fc.nat({ max: DATABASE.length }), anyText({ maxLength: 3 }), fc.nat({ max: 3 }))
        .map(([at, added, removed]) => DATABASE.slice(0, at) + added + DATABASE.slice(at + removed)),
    );
    fc.assert(
      fc.property(texts, (text) => check(text)),
      settings(RUNS),
    );
  });
});

describe("a valid configuration", () => {
  test("is the same when what was printed of it is loaded again, secrets aside", () => {
    let loadable = 0;
    fc.assert(
      fc.property(validTrees, (tree) => {
        const { loaded } = inspectConfig(optionsFor(JSON.stringify(tree)));
        if (loaded === undefined) return;
        loadable += 1;
        const printed = printConfig(loaded);
        expect(printed).not.toContain(MARKER);
        // Some secrets must have a form, such as base64.
        const again = printed.replaceAll("Secret(***)", MARKER);
        expect(effectiveConfig(loadConfig(optionsFor(again)))).toEqual(effectiveConfig(loaded));
      }),
      settings(HEAVY_RUNS),
    );
    expect(loadable).toBeGreaterThan(0);
  });
});
