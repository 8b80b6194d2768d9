/** Numbers and times as people read them. What is not known is a dash, never 0. */

export const UNKNOWN = "–";

const NUMBERS = new Intl.NumberFormat("en");

export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? UNKNOWN : NUMBERS.format(value);
}

/** A length of time in its two largest units, such as `3 min 20 s`. */
export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return UNKNOWN;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const units: readonly (readonly [string, number])[] = [
    ["d", 86_400],
    ["h", 3600],
    ["min", 60],
    ["s", 1],
  ];
  let rest = Math.floor(ms / 1000);
  const parts: string[] = [];
  for (const [unit, seconds] of units) {
    const amount = Math.floor(rest / seconds);
    rest -= amount * seconds;
    if (amount > 0) parts.push(`${amount} ${unit}`);
    else if (parts.length > 0) break;
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

/** How long ago, such as `3 min ago`. */
export function ago(at: string | null | undefined, now = Date.now()): string {
  if (at === null || at === undefined) return UNKNOWN;
  const ms = now - Date.parse(at);
  if (ms < 1000) return "just now";
  const [largest = ""] = duration(ms).split(/(?<=\d \w+) /);
  return `${largest} ago`;
}

export function plural(amount: number, one: string, many = `${one}s`): string {
  return `${count(amount)} ${amount === 1 ? one : many}`;
}

/** What a `datetime-local` field holds, in UTC as every time here, as an instant; undefined if it is empty. */
export function instantOf(entered: string): string | undefined {
  const date = new Date(`${entered}Z`);
  return Number.isNaN(date.getTime()) ? undefined : date.toISOString();
}

/**
 * Indents JSON without reading its values, so that every digit of a number stays.
 *
 * @returns the text unchanged when it is not JSON
 */
export function indentJson(text: string): string {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  let depth = 0;
  let result = "";
  for (const [n, token] of tokens.entries()) {
    const line = (): string => `\n${"  ".repeat(depth)}`;
    const isEmpty = /[{[]/.test(tokens[n - 1] ?? "") && (tokens[n - 1]?.length ?? 0) === 1;
    if (token === "{" || token === "[") {
      depth++;
      result += token + (/^[}\]]$/.test(tokens[n + 1] ?? "") ? "" : line());
    } else if (token === "}" || token === "]") {
      depth--;
      result += (isEmpty ? "" : line()) + token;
    } else if (token === ",") result += token + line();
    else result += token === ":" ? ": " : token;
  }
  return result;
}
