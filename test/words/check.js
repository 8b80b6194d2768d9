import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { TextlintKernel } from "@textlint/kernel";
import markdown from "@textlint/textlint-plugin-markdown";
import code from "./code.js";
import { bareMembersIn } from "./members.js";
import style from "./style.js";

/** Checks the style of every text of the repository, and the names of members of classes. `exceptions.json` says what stays, and why. */

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const EXCEPTIONS = fileURLToPath(new URL("exceptions.json", import.meta.url));
const PLACES = [
  ...["src", "roles", "migrations", "test", "docs", "deploy", "helm", ".ci", "clients/typescript/src"],
  ...["README.md", "CONTRIBUTING.md", "clients/README.md"],
];
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

/**
 * @param found the findings by file
 * @param exceptions by file: the number of its `phrases`, and `why` they stay
 * @returns what differs, a line each
 */
export function differences(found, exceptions) {
  const lines = [];
  for (const [file, findings] of found) {
    const allowed = exceptions[file]?.phrases ?? 0;
    if (findings.length <= allowed) continue;
    lines.push(`${file}: ${findings.length} findings, ${allowed} in test/words/exceptions.json`);
    for (const { line, column, message } of findings) lines.push(`  ${file}:${line}:${column} ${message}`);
  }
  for (const [file, { phrases }] of Object.entries(exceptions)) {
    const now = found.get(file)?.length ?? 0;
    if (now < phrases)
      lines.push(`${file}: ${phrases} phrases in test/words/exceptions.json, ${now} are left: correct it`);
  }
  return lines;
}

async function findingsByFile() {
  const files = PLACES.flatMap((place) =>
    place.endsWith(".md")
      ? [place]
      : readdirSync(path.join(ROOT, place), { recursive: true }).map((f) => path.join(place, f)),
  ).filter((file) => LINTED.test(file) && !LEFT_OUT.has(file));
  const found = new Map();
  for (const file of files.sort()) {
    const text = readFileSync(path.join(ROOT, file), "utf8");
    const findings = await findingsIn(text, path.extname(file));
    if (/^(?:src|roles|clients)\/.*\.tsx?$/.test(file)) findings.push(...bareMembersIn(text));
    if (findings.length > 0) found.set(file, findings);
  }
  return found;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const found = await findingsByFile();
  const lines = differences(found, JSON.parse(readFileSync(EXCEPTIONS, "utf8")));
  for (const line of lines) console.error(line);
  if (lines.length > 0) process.exitCode = 1;
}
