/** What the tests of the documentation read out of a page. */

export interface CodeBlock {
  /** The word behind the fence, such as `sql`; empty when there is none. */
  readonly language: string;
  readonly text: string;
}

/** Fenced blocks, also those inside lists, without the indentation of their fence. */
export function codeBlocks(page: string): readonly CodeBlock[] {
  return [...page.matchAll(/^( *)```(\w*)[^\n]*\n(.*?)^ *```$/gms)].map(
    ([, indent = "", language = "", text = ""]) => ({
      language,
      text: text.replaceAll(new RegExp(`^${indent}`, "gm"), ""),
    }),
  );
}

/** The texts of the fenced blocks of a language, in their order. */
export function blocksOf(page: string, language: string): string[] {
  return codeBlocks(page).flatMap((block) => (block.language === language ? [block.text] : []));
}

/** The page without its fenced blocks. */
export function prose(page: string): string {
  return page.replaceAll(/^ *```.*?^ *```$/gms, "");
}

/** The texts that stand between single backticks outside of fenced blocks; a `\|` of a table is a `|`. */
export function codeSpans(page: string): readonly string[] {
  return [...prose(page).matchAll(/`([^`\n]+)`/g)].map(([, text = ""]) => text.replaceAll("\\|", "|"));
}

/** The headings of a page. */
export function headings(page: string): readonly string[] {
  return [...prose(page).matchAll(/^#+ +(.*?) *#*$/gm)].map(([, heading = ""]) => heading);
}

/**
 * Anchors of a page's headings, as GitHub makes them: a heading that occurs again gets a number behind it.
 *
 * @param page Markdown
 */
export function anchors(page: string): ReadonlySet<string> {
  const seen = new Map<string, number>();
  const numbered = headings(page)
    .map(slug)
    .map((heading) => {
      const before = seen.get(heading) ?? 0;
      seen.set(heading, before + 1);
      return before === 0 ? heading : `${heading}-${before}`;
    });
  const explicit = [...page.matchAll(/<a (?:id|name)="([^"]+)"/g)].map(([, name = ""]) => name);
  return new Set([...numbered, ...explicit]);
}

function slug(heading: string): string {
  return heading
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");
}

/** Targets of links and images outside of code. */
export function links(page: string): readonly string[] {
  const text = prose(page).replaceAll(/`[^`\n]*`/g, "");
  const inline = [...text.matchAll(/\]\(([^)\s]+)(?: "[^"]*")?\)/g)];
  const references = [...text.matchAll(/^ {0,3}\[[^\]]+\]: +(\S+)/gm)];
  return [...inline, ...references].map(([, target = ""]) => target);
}
