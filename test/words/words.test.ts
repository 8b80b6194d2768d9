import { expect, test } from "@jest/globals";
import { differences, findingsIn, shrunk } from "./check.js";

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

test("a file may have fewer phrases than its baseline says, which then shrinks, and never more", () => {
  const finding = { line: 1, column: 2, message: "said once" };
  const found = new Map([
    ["more.ts", [finding, finding]],
    ["new.ts", [finding]],
    ["same.ts", [finding]],
  ]);
  const baseline = { "more.ts": 1, "same.ts": 1, "fewer.ts": 2 };
  expect(differences(found, baseline)).toEqual([
    "more.ts: 2 phrases against the style, 1 in test/words/baseline.json",
    "  more.ts:1:2 said once",
    "  more.ts:1:2 said once",
    "new.ts: 1 phrases against the style, 0 in test/words/baseline.json",
    "  new.ts:1:2 said once",
    "fewer.ts: 2 phrases in test/words/baseline.json, 0 are left: npm run fix",
  ]);
  expect(shrunk(found, baseline)).toEqual({ "more.ts": 1, "same.ts": 1 });
});
