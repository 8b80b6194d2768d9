import { blocksOf } from "./markdown.ts";
import { read } from "./repository.ts";

/**
 * The SQL statements of a section, so that a test runs what the page asks its reader to run.
 *
 * @param page file, such as `docs/runbook.md`
 * @param heading of the section, without its number signs
 * @throws Error when the page has no such section, or the section no SQL
 */
export function statementsOf(page: string, heading: string): readonly string[] {
  const [, level = "", section = ""] =
    new RegExp(`^(#+) ${heading}\\n(.*?)(?=^#{1,6} |(?![^]))`, "ms").exec(read(page)) ?? [];
  const statements = blocksOf(section, "sql").flatMap((block) =>
    block.split(/;\s*$/m).filter((text) => /\S/.test(text)),
  );
  if (level === "" || statements.length === 0) throw new Error(`${page} has no SQL under the heading "${heading}"`);
  return statements;
}
