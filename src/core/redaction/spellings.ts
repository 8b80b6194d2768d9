import { beginsEscape, type EscapedText, MAX_ESCAPE_LENGTH } from "./escapes.ts";

/** Maps a unit to the one to compare; {@link SKIPPED} for one that may occur anywhere within a word. */
type Fold = (unit: number) => number;

/** A unit left out of the comparison. */
export const SKIPPED = -1;
export const BLANK = 0x20;

interface Node {
  /** The unit that leads here. */
  readonly unit: number;
  /** Whether a word ends here; `alone`: it counts only without a letter or digit next to it. */
  ends: "no" | "alone" | "anywhere";
  /** Most nodes have one successor, which needs no map. */
  next: Node | undefined;
  others: Map<number, Node> | undefined;
}

/** The result of a search at one position. */
interface Found {
  /** End of the longest word; undefined without one. */
  readonly end: number | undefined;
  /** The text ends before a longer word could. */
  readonly open: boolean;
}

const NOTHING: Found = { end: undefined, open: false };

/** Bounds the work for one text: some are crafted to have as many readings as possible. */
interface Effort {
  /** Steps; below 0 the search has given up, and its results are incomplete. */
  left: number;
}

/** A shorter word counts only by itself: masking each `a` would leave nothing to read. */
const MIN_ANYWHERE_LENGTH = 4;

/** A set of words, found however their characters are escaped. */
export class Spellings {
  readonly #root = node(SKIPPED);
  readonly #fold: Fold;

  constructor(words: Iterable<string>, fold: Fold) {
    this.#fold = fold;
    for (const word of words) this.#add(word);
  }

  /** Whether a word can begin with these two units, the first of them unescaped. */
  beginsWith(first: number, second: number): boolean {
    const next = this.#next(this.#root, first);
    if (next === undefined) return false;
    return next.ends !== "no" || beginsEscape(second) || this.#next(next, second) !== undefined;
  }

  /** Finds the words that begin at a position. */
  at(text: EscapedText, start: number, effort: Effort): Found {
    let here = this.#root;
    let position = start;
    let end: number | undefined;
    // Far from any escape there is only one reading.
    while (position < text.text.length - MAX_ESCAPE_LENGTH) {
      const unit = text.text.charCodeAt(position);
      if (beginsEscape(unit)) break;
      const next = this.#next(here, unit);
      if (next === undefined) return end === undefined ? NOTHING : { end, open: false };
      here = next;
      position++;
      if (ends(here, text.text, start, position)) end = position;
      effort.left--;
    }
    return this.#branch(text, { start, end }, { node: here, position }, effort);
  }

  /** Continues where several readings are possible. */
  #branch(
    text: EscapedText,
    { start, end: found }: { readonly start: number; readonly end: number | undefined },
    from: State,
    effort: Effort,
  ): Found {
    let following: readonly State[] = [from];
    let end = found;
    let open = false;
    while (following.length > 0 && effort.left >= 0) {
      const states = following;
      const reached: State[] = [];
      const reach = (next: Node | undefined, position: number): void => {
        effort.left -= 1 + reached.length;
        if (next === undefined || reached.some((each) => each.node === next && each.position === position)) return;
        reached.push({ node: next, position });
      };
      for (const { node: here, position } of states) {
        if (position > (end ?? -1) && ends(here, text.text, start, position)) end = position;
        if (endsEarly(text.text, position)) open ||= here !== this.#root;
        if (position >= text.text.length) continue;
        const unit = text.text.charCodeAt(position);
        if (!beginsEscape(unit)) reach(this.#next(here, unit), position + 1);
        else for (const { units, end: after } of text.at(position)) reach(this.#nextOf(here, units), after);
      }
      following = reached;
    }
    return end === undefined && !open ? NOTHING : { end, open };
  }

  /** The next node; undefined when no word continues with this unit. */
  #next(here: Node, unit: number): Node | undefined {
    const folded = this.#fold(unit);
    // Any run of blanks counts as one. A word never begins with a skipped unit.
    const stays = folded === SKIPPED || (folded === BLANK && here.unit === BLANK);
    if (stays) return here === this.#root ? undefined : here;
    return successor(here, folded);
  }

  #nextOf(here: Node, units: string): Node | undefined {
    let next: Node | undefined = here;
    for (let index = 0; index < units.length && next !== undefined; index++) {
      next = this.#next(next, units.charCodeAt(index));
    }
    return next;
  }

  #add(word: string): void {
    if (word === "") return;
    let here = this.#root;
    for (let index = 0; index < word.length; index++) here = grown(here, word.charCodeAt(index));
    here.ends = word.length < MIN_ANYWHERE_LENGTH ? "alone" : "anywhere";
  }
}

interface State {
  readonly node: Node;
  readonly position: number;
}

/** Whether a word ends here. */
function ends(here: Node, text: string, start: number, end: number): boolean {
  return here.ends === "anywhere" || (here.ends === "alone" && alone(text, start, end));
}

function node(unit: number): Node {
  return { unit, ends: "no", next: undefined, others: undefined };
}

function successor(from: Node, unit: number): Node | undefined {
  return from.next?.unit === unit ? from.next : from.others?.get(unit);
}

function grown(from: Node, unit: number): Node {
  const known = successor(from, unit);
  if (known !== undefined) return known;
  const made = node(unit);
  if (from.next === undefined) from.next = made;
  else {
    from.others ??= new Map();
    from.others.set(unit, made);
  }
  return made;
}

const WORD = /[\p{L}\p{N}]/u;

function alone(text: string, start: number, end: number): boolean {
  const after = text.codePointAt(end);
  return !WORD.test(text.charAt(start - 1)) && (after === undefined || !WORD.test(String.fromCodePoint(after)));
}

/** Whether the text ends here, or in an escape that begins here. */
function endsEarly(text: string, position: number): boolean {
  if (position >= text.length) return true;
  return text.length - position < MAX_ESCAPE_LENGTH && beginsEscape(text.charCodeAt(position));
}
