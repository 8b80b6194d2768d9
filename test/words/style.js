/**
 * The style of what people read here: comments, documentation, texts of errors, logs and answers. The subject of a
 * sentence is a noun of the field, the verb is active, and a condition begins with "if" or "when".
 */

/** What not to write, and what to write instead. */
const PHRASES = [
  [/where (?:a|an|the|it|one|there)/, 'begin a condition with "if" or "when"'],
  [/(?:one|those) (?:that|which|who|whose)/, "name the noun: the row, the claim, the replica"],
  [/(?:is|are|was|were|be|been) told/, "say who reports what to whom"],
  [/said once/, "name the one place"],
  [/as (?:it|they) (?:is|are|was|were)/, "say what stays the same: unchanged, still pending"],
  [/keeps? no/, 'write "does not prevent", "does not block" or "has no"'],
  [/whoever/, "name the person or the process"],
  [/of which/, 'write "whose", or two sentences'],
  [/(?:go|goes|went|going) on/, 'write "continue" or "resume"'],
  [/for so many/, "say how many of what, with the unit"],
  [/at fault/, "say what refuses what, or what is wrong with it"],
  [/in vain/, "say what was not found or not done"],
  [/for the sake of/, 'write "for" or "so that"'],
].map(([words, advice]) => ({ words: new RegExp(`\\b${words.source.replaceAll(" ", " +")}\\b`, "gi"), advice }));

/** What begins a line within a comment or a quotation, beside blanks; and code within a sentence. */
const MARGIN = /\n[ \t]*(?:\*(?!\/)|\/\/|--|#+|>)?/g;
const CODE = /`[^`]+`/g;

/** A rule of textlint that reports each of these phrases, also when it extends over two lines. */
export default function style({ Syntax, RuleError, report, locator, getSource }) {
  function check(node) {
    const text = getSource(node)
      .replace(MARGIN, (margin) => " ".repeat(margin.length))
      .replace(CODE, (code) => "`".repeat(code.length))
      .replace(/\s/g, " ");
    for (const { words, advice } of PHRASES) {
      for (const { 0: found, index } of text.matchAll(words)) {
        report(node, new RuleError(`"${found.replace(/ +/g, " ")}": ${advice}`, { padding: locator.at(index) }));
      }
    }
  }
  return { [Syntax.Paragraph]: check, [Syntax.Header]: check, [Syntax.TableCell]: check };
}
