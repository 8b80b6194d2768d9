import { readFileSync } from "node:fs";
import { expect, test } from "@jest/globals";
import { differences, type Exceptions, findingsIn } from "./check.js";
import { bareMembersIn } from "./members.js";

/** The linter of our style finds its phrases in every kind of text, at their place, and nothing else. */

const places = async (text: string, ext: string) =>
  (await findingsIn(text, ext)).map(({ line, column, message }) => `${line}:${column} ${message.split(":")[0]}`);

test("finds a phrase in comments, texts and templates of a script, and in no name", async () => {
  const script = `/** Where the row waits. */
const whereTheRow = "nobody is told";
// A claim that
// goes  on.
throw new Error(\`the row \${id} keeps no lease\`);
const of_which = /whoever/;
`;
  expect(await places(script, ".ts")).toEqual([
    '1:5 "Where the"',
    '2:29 "is told"',
    '4:4 "goes on"',
    '5:32 "keeps no"',
  ]);
});

test("finds a phrase that extends over two lines of a comment or a paragraph", async () => {
  expect(await places("/**\n * Rows, for the sake\n * of order.\n */\n", ".ts")).toEqual(['2:10 "for the sake of"']);
  expect(await places("A claim, as it\nis, waits.\n", ".md")).toEqual(['1:10 "as it is"']);
});

test("reads headings, tables and quotations of a page, and leaves its code alone", async () => {
  const page =
    "# Where the row is\n\n> said once\n\n| a |\n| --- |\n| in vain |\n\n```sql\n-- at fault\n```\n\n`of which`\n";
  expect(await places(page, ".md")).toEqual(['1:3 "Where the"', '3:3 "said once"', '7:3 "in vain"']);
});

test("reads the comments of SQL, YAML and shell scripts", async () => {
  expect(await places("-- whoever\nSELECT 'whoever';\n", ".sql")).toEqual(['1:4 "whoever"']);
  expect(await places("a: of which\n# of which\n", ".yml")).toEqual(['2:3 "of which"']);
});

test("a file has as many phrases as its exception says, or none", () => {
  const finding = { line: 1, column: 2, message: "said once" };
  const found = new Map([
    ["more.ts", [finding, finding]],
    ["new.ts", [finding]],
    ["same.ts", [finding]],
  ]);
  const exception = (phrases: number) => ({ phrases, why: "its bytes are released" });
  const exceptions = { "more.ts": exception(1), "same.ts": exception(1), "fewer.ts": exception(2) };
  expect(differences(found, exceptions)).toEqual([
    "more.ts: 2 findings, 1 in test/words/exceptions.json",
    "  more.ts:1:2 said once",
    "  more.ts:1:2 said once",
    "new.ts: 1 findings, 0 in test/words/exceptions.json",
    "  new.ts:1:2 said once",
    "fewer.ts: 2 phrases in test/words/exceptions.json, 0 are left: correct it",
  ]);
});

test("there are at most 25 exceptions, each with a reason", () => {
  const exceptions = JSON.parse(readFileSync(new URL("exceptions.json", import.meta.url), "utf8")) as Exceptions;
  const reasons = Object.values(exceptions).map(({ why }) => why);

  expect(Object.values(exceptions).reduce((sum, { phrases }) => sum + phrases, 0)).toBeLessThanOrEqual(25);
  expect(reasons.filter((why) => why.trim().length < 10)).toEqual([]);
});

test("finds members of classes that are a verb or a participle without its object", () => {
  const script = `class Claims {
  readonly held = new Set<string>();
  #saw = 0;
  readonly heldRows = 1;
  isClosed = false;
  read(): void {}
  get taken(): number { return this.#saw; }
}
const held = { taken: 1 };
`;
  expect(bareMembersIn(script).map(({ line, message }) => `${line} ${message.split(":")[0]}`)).toEqual([
    '2 "held"',
    '3 "saw"',
    '7 "taken"',
  ]);
});
