/** What a PromQL expression reads. */
export interface PromqlUsage {
  readonly selectors: readonly Selector[];
  /** Labels of `by`, `without`, `on`, `ignoring`, `group_left` and `group_right`. */
  readonly grouping: readonly string[];
  /** Labels that `label_replace` makes. */
  readonly made: readonly string[];
}

export interface Selector {
  readonly metric: string;
  readonly matchers: readonly Matcher[];
}

export interface Matcher {
  readonly label: string;
  readonly operator: "=" | "!=" | "=~" | "!~";
  readonly value: string;
}

const TOKEN = /"(?:[^"\\]|\\.)*"|\[[^\]]*\]|[A-Za-z_:][\w:]*|\d[\w.]*|=~|!~|!=|==|[<>]=|\S/g;
const NAME = /^[A-Za-z_:]/;
const WITH_LABELS = new Set(["by", "without", "on", "ignoring", "group_left", "group_right"]);
const WORDS = new Set(["and", "or", "unless", "bool", "offset"]);
const AGGREGATIONS = new Set(["sum", "min", "max", "avg", "count", "group"]);

/**
 * Takes the metrics, matchers and grouping labels out of an expression. Whether the expression is valid is promtool's to say.
 *
 * @throws Error on a selector without a name of a metric
 */
export function usageOf(expression: string): PromqlUsage {
  const tokens: readonly string[] = expression.match(TOKEN) ?? [];
  const selectors: Selector[] = [];
  const grouping: string[] = [];
  let at = 0;
  while (at < tokens.length) {
    const token = tokens[at] ?? "";
    const next = tokens[at + 1];
    at += 1;
    if (token === "{") throw new Error(`a selector without the name of a metric: ${expression}`);
    if (!NAME.test(token) || WORDS.has(token)) continue;
    if (WITH_LABELS.has(token)) {
      const end = tokens.indexOf(")", at);
      grouping.push(...tokens.slice(at, end).filter((each) => NAME.test(each)));
      at = end + 1;
    } else if (next === "{") {
      const end = tokens.indexOf("}", at);
      selectors.push({ metric: token, matchers: matchersOf(tokens.slice(at + 1, end)) });
      at = end + 1;
    } else if (next !== "(" && !AGGREGATIONS.has(token)) {
      selectors.push({ metric: token, matchers: [] });
    }
  }
  const made = [...expression.matchAll(/"(\w+)",\s*"[^"]*",\s*"\w+",\s*"[^"]*"\s*\)/g)].map(([, label = ""]) => label);
  return { selectors, grouping, made };
}

/** @param tokens what stands between the braces */
function matchersOf(tokens: readonly string[]): Matcher[] {
  const matchers: Matcher[] = [];
  for (let at = 0; at < tokens.length; at += 4) {
    const [label = "", operator = "", value = ""] = tokens.slice(at, at + 3);
    matchers.push({ label, operator: operator as Matcher["operator"], value: JSON.parse(value) as string });
  }
  return matchers;
}
