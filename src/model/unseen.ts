/**
 * Characters that nobody sees, and that change what is seen: controls beyond ASCII, marks that turn the direction of text, characters
 * without width, separators of lines. A topic or key that holds them can make a line say something else.
 */
const UNSEEN = /[\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
/** Controls of ASCII except tabulator and line feed. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const CONTROLS = /[\u0000-\u0008\u000b-\u001f]/g;

/**
 * Writes characters that nobody sees as escapes.
 *
 * @param text a line of JSON, which stays the same JSON, or a text with the colours of a terminal, which stay
 */
export function escapeUnseen(text: string): string {
  return text.replace(UNSEEN, escaped);
}

/** Writes characters that nobody sees, and controls of ASCII except tabulator and line feed, as escapes: for a terminal. */
export function escapeControls(text: string): string {
  return escapeUnseen(text.replace(CONTROLS, escaped));
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
