import fc from "fast-check";

/** No characters: their place among the code points is left out. */
const SURROGATES = { first: 0xd800, length: 0x800 } as const;

/** Any character. fast-check's own `binary` first makes a table of them all, which takes a second or two in each file. */
const anyCharacter = fc
  .nat({ max: 0x10ffff - SURROGATES.length })
  .map((n) => String.fromCodePoint(n < SURROGATES.first ? n : n + SURROGATES.length));

/** Text of any characters. */
export function anyText(
  lengths: { readonly minLength?: number; readonly maxLength?: number } = {},
): fc.Arbitrary<string> {
  return fc.string({ unit: anyCharacter, ...lengths });
}
