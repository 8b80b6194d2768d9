/**
 * Topic patterns (spec, "routes"): a glob for the whole topic. `*` matches one segment, that is one or more characters
 * other than a dot (`orders.*` matches `orders.created`, but neither `orders.` nor `orders.created.v1`; in `order-*` it
 * is the rest of a segment); `**` matches any text, even none; everything else is literal.
 */

type Token =
  | { readonly kind: "text"; readonly character: number }
  | { readonly kind: "segment" }
  | { readonly kind: "any" };

const DOT = ".".charCodeAt(0);

/**
 * @param pattern such as `orders.*` or `**.audit`
 * @returns a function that tests a topic, in time at most proportional to the topic's length times the pattern's
 * @throws Error when three asterisks are adjacent
 */
export function compileTopicPattern(pattern: string): (topic: string) => boolean {
  const triple = pattern.indexOf("***");
  if (triple >= 0) {
    throw new Error(
      `${JSON.stringify(pattern)} has *** at character ${triple + 1}; ` +
        "use * for one segment without a dot or ** for any text",
    );
  }
  const firstWildcard = pattern.indexOf("*");
  if (firstWildcard < 0) return (topic) => topic === pattern;

  const prefix = pattern.slice(0, firstWildcard);
  const rest = pattern.slice(firstWildcard);
  if (rest === "**") return (topic) => topic.startsWith(prefix);
  if (rest === "*") {
    return (topic) => topic.length > prefix.length && topic.startsWith(prefix) && !topic.includes(".", prefix.length);
  }
  const tokens = tokenize(rest);
  return (topic) => topic.startsWith(prefix) && matches(tokens, topic, prefix.length);
}

function tokenize(text: string): readonly Token[] {
  return Array.from(text.matchAll(/\*\*|\*|[^*]/gs), ([part]): Token => {
    if (part === "**") return { kind: "any" };
    if (part === "*") return { kind: "segment" };
    return { kind: "text", character: part.charCodeAt(0) };
  });
}

/**
 * Runs the pattern as an automaton: `live[i]` is 1 when the first i tokens can match the characters so far. A regular
 * expression would backtrack: `*a*a*a*b` against a long run of `a` takes minutes.
 */
function matches(tokens: readonly Token[], topic: string, from: number): boolean {
  const end = tokens.length;
  let live = new Uint8Array(end + 1);
  let next = new Uint8Array(end + 1);
  enter(tokens, live, 0);

  for (let at = from; at < topic.length; at++) {
    const character = topic.charCodeAt(at);
    let alive = false;
    next.fill(0);
    for (let i = 0; i < end; i++) {
      const token = tokens[i];
      if (live[i] === 0 || token === undefined) continue;
      if (token.kind === "any") {
        enter(tokens, next, i);
      } else if (token.kind === "segment") {
        if (character === DOT) continue;
        next[i] = 1;
        enter(tokens, next, i + 1);
      } else {
        if (character !== token.character) continue;
        enter(tokens, next, i + 1);
      }
      alive = true;
    }
    if (!alive) return false;
    [live, next] = [next, live];
  }
  return live[end] === 1;
}

/** Marks token `i`, and the following ones that need no character. */
function enter(tokens: readonly Token[], states: Uint8Array, i: number): void {
  states[i] = 1;
  for (let at = i; tokens[at]?.kind === "any"; at++) states[at + 1] = 1;
}
