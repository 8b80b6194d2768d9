import { parse } from "@babel/parser";

/** A plugin of textlint that reads comments and texts of code as paragraphs. */
export default {
  Processor: class {
    availableExtensions() {
      return [".ts", ".tsx", ".js", ".sql", ".yml", ".yaml", ".sh", ".tpl"];
    }

    processor(extension) {
      return {
        preProcess: (text) => documentOf(text, /^\.[jt]sx?$/.test(extension) ? ofScript(text) : ofLines(text)),
        postProcess: (messages, filePath) => ({ messages, filePath }),
      };
    }
  },
};

/** @returns ranges of the comments and texts of a script; adjacent comments of a line each are one */
function ofScript(text) {
  const { comments, tokens } = parse(text, {
    sourceType: "module",
    plugins: ["typescript", "jsx"],
    tokens: true,
    errorRecovery: true,
  });
  const ranges = [];
  for (const { type, start, end } of comments) {
    const last = ranges.at(-1);
    const isNext = type === "CommentLine" && last !== undefined && /^\n[ \t]*$/.test(text.slice(last[1], start));
    if (isNext) last[1] = end;
    else ranges.push([start, end]);
  }
  for (const { type, start, end } of tokens) {
    if (["string", "template", "jsxText"].includes(type?.label)) ranges.push([start, end]);
  }
  return ranges.sort(([a], [b]) => a - b);
}

/** @returns ranges of the lines that begin with a mark of comments; adjacent ones are one */
function ofLines(text) {
  return [...text.matchAll(/(?:^[ \t]*(?:--|#).*(?:\n|$))+/gm)].map(({ 0: { length }, index }) => [
    index,
    index + length,
  ]);
}

function documentOf(text, ranges) {
  const lineStarts = [0, ...[...text.matchAll(/\n/g)].map(({ index }) => index + 1)];
  const positionOf = (offset) => {
    const line = lineStarts.findLastIndex((start) => start <= offset);
    return { line: line + 1, column: offset - lineStarts[line] };
  };
  const nodeOf = (type, range, children) => ({
    type,
    raw: text.slice(...range),
    range,
    loc: { start: positionOf(range[0]), end: positionOf(range[1]) },
    ...children,
  });
  return nodeOf("Document", [0, text.length], {
    children: ranges.map((range) => nodeOf("Paragraph", range, { children: [] })),
  });
}
