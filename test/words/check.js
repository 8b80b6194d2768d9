import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { TextlintKernel } from "@textlint/kernel";
import markdown from "@textlint/textlint-plugin-markdown";
import code from "./code.js";
import style from "./style.js";

/**
 * Checks the style of every text of the repository. What stood when the style was agreed is counted by file in
 * `baseline.json`: a file may have fewer of its phrases, never more. `--shrink` writes the lower numbers.
 */

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const BASELINE = fileURLToPath(new URL("baseline.json", import.meta.url));
const PLACES = ["src", "roles", "migrations", "test", "docs", "deploy", "helm", ".ci", "README.md", "CONTRIBUTING.md"];
const LINTED = /\.(?:md|[jt]sx?|sql|ya?ml|sh|tpl)$/;
/** Generated from the code, which is checked; the list of what not to write. */
const LEFT_OUT = new Set(["docs/configuration.md", "test/words/style.js", "test/words/words.test.ts"]);

const kernel = new TextlintKernel();
const options = {
  rules: [{ ruleId: "style", rule: style }],
  plugins: [
    { pluginId: "markdown", plugin: markdown.default },
    { pluginId: "code", plugin: code },
  ],
};

/** @returns the findings in a text, as `{ line, column, message }` @param ext such as `.md`, which says how to read it */
export async function findingsIn(text, ext) {
  const { messages } = await kernel.lintText(text, { ...options, ext, filePath: `text${ext}` });
  return messages.map(({ loc, message }) => ({ line: loc.start.line, column: loc.start.column, message }));
}

/** @returns what differs from the baseline, a line each */
export function differences(found, baseline) {
  const lines = [];
  for (const [file, findings] of found) {
    const before = baseline[file] ?? 0;
    if (findings.length <= before) continue;
    lines.push(`${file}: ${findings.length} phrases against the style, ${before} in test/words/baseline.json`);
    for (const { line, column, message } of findings) lines.push(`  ${file}:${line}:${column} ${message}`);
  }
  for (const [file, before] of Object.entries(baseline)) {
    const now = found.get(file)?.length ?? 0;
    if (now < before)
      lines.push(`${file}: ${before} phrases in test/words/baseline.json, ${now} are left: npm run fix`);
  }
  return lines;
}

/** @returns a baseline with the lower numbers of both */
export function shrunk(found, baseline) {
  const entries = Object.entries(baseline).map(([file, before]) => [
    file,
    Math.min(before, found.get(file)?.length ?? 0),
  ]);
  return Object.fromEntries(entries.filter(([, count]) => count > 0));
}

async function findingsByFile() {
  const files = PLACES.flatMap((place) =>
    place.endsWith(".md")
      ? [place]
      : readdirSync(path.join(ROOT, place), { recursive: true }).map((f) => path.join(place, f)),
  ).filter((file) => LINTED.test(file) && !LEFT_OUT.has(file));
  const found = new Map();
  for (const file of files.sort()) {
    const findings = await findingsIn(readFileSync(path.join(ROOT, file), "utf8"), path.extname(file));
    if (findings.length > 0) found.set(file, findings);
  }
  return found;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const found = await findingsByFile();
  const baseline = JSON.parse(readFileSync(BASELINE, "utf8"));
  if (process.argv.includes("--shrink")) {
    writeFileSync(BASELINE, `${JSON.stringify(shrunk(found, baseline), null, 2)}\n`);
  } else {
    const lines = differences(found, baseline);
    for (const line of lines) console.error(line);
    if (lines.length > 0) process.exitCode = 1;
  }
}
