/**
 * Topic patterns (spec, "routes"): a glob for the whole topic. `*` matches one segment, that is one or more characters
 * other than a dot (`orders.*` matches `orders.created`, but neither `orders.` nor `orders.created.v1`; in `order-*` it
 * is the rest of a segment); `**` matches any text, even none; everything else is literal.
 */

/** Most characters of a pattern: as many as a topic has on SQL Server. */
export const LONGEST_PATTERN = 1000;

const DOT = ".".charCodeAt(0);
/** Stand for `**` and `*` among the codes of characters. */
const [ANY, SEGMENT] = [-2, -1];

/**
 * The pattern as an automaton: bit i is live if the first i tokens can match the characters so far; 32 of them take one
 * step (Shift-And). A regular expression would backtrack: `*a*a*a*b` against a long run of `a` takes minutes.
 *
 * @returns a function that tests a topic, in time proportional to the topic's length: at most 32 steps for a character
 * @throws Error when three asterisks are adjacent, or the pattern is longer than {@link LONGEST_PATTERN}
 */
export function compileTopicPattern(pattern: string): (topic: string) => boolean {
  if (pattern.length > LONGEST_PATTERN) {
    throw new Error(`a topic pattern of at most ${LONGEST_PATTERN} characters is expected; this has ${pattern.length}`);
  }
  const triple = pattern.indexOf("***");
  if (triple >= 0) {
    throw new Error(
      `${JSON.stringify(pattern)} has *** at character ${triple + 1}; ` +
        "use * for one segment without a dot or ** for any text",
    );
  }
  const tokens = pattern.match(/\*\*|./gs) ?? [];
  const end = tokens.length;
  const size = (end >> 5) + 1;
  const sets = new Map<number, Int32Array>();
  for (const [i, token] of tokens.entries()) {
    const character = token === "**" ? ANY : token === "*" ? SEGMENT : token.charCodeAt(0);
    const set = sets.get(character) ?? new Int32Array(size);
    set[i >> 5] = (set[i >> 5] ?? 0) | (1 << (i & 31));
    sets.set(character, set);
  }
  const none = new Int32Array(size);
  const [any, segment] = [sets.get(ANY) ?? none, sets.get(SEGMENT) ?? none];
  return (topic) => {
    const live = new Int32Array(size);
    // What follows `**` is live with it: never another wildcard.
    live[0] = tokens[0] === "**" ? 0b11 : 0b1;
    for (let at = 0; at < topic.length; at++) {
      const character = topic.charCodeAt(at);
      const literal = sets.get(character) ?? none;
      let carry = 0;
      let alive = 0;
      for (let word = 0; word < size; word++) {
        const here = live[word] ?? 0;
        const inSegment = character === DOT ? 0 : here & (segment[word] ?? 0);
        const passed = inSegment | (here & (literal[word] ?? 0));
        const reached = (here & (any[word] ?? 0)) | inSegment | (passed << 1) | carry;
        const opened = reached & (any[word] ?? 0);
        carry = (passed | opened) >>> 31;
        live[word] = reached | (opened << 1);
        alive |= live[word] ?? 0;
      }
      if (alive === 0) return false;
    }
    return (((live[end >> 5] ?? 0) >>> (end & 31)) & 1) === 1;
  };
}

/**
 * Whether a pattern can match topics that are known in part.
 *
 * @param parts literal texts between which each topic has other text, or none; a single part is the whole topic
 * @returns false only if it matches none of them: the first and the last part decide
 */
export function mayMatch(pattern: string, parts: readonly string[]): boolean {
  const [begin = "", end] = [parts[0], parts.length > 1 ? parts.at(-1) : undefined];
  if (end === undefined) return compileTopicPattern(pattern)(begin);
  const literals = pattern.split("*");
  const [first = "", last = ""] = [literals[0], literals.at(-1)];
  if (literals.length === 1) return pattern.startsWith(begin) && pattern.endsWith(end);
  return (first.startsWith(begin) || begin.startsWith(first)) && (last.endsWith(end) || end.endsWith(last));
}
