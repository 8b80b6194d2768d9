import type { Dice } from "./dice.ts";

/** The largest body that the service of the test takes. */
export const MAX_BODY_BYTES = 65_536;

/**
 * Makes the body of one message: mostly something that a sender might really get wrong.
 *
 * @param unique a text that no other message has, for messages that are to be stored
 */
export function anyBody(dice: Dice, unique: string): Buffer {
  const make = dice.pick(MAKERS);
  const made = make(dice, unique);
  const body = typeof made === "string" ? Buffer.from(made) : made;
  return body.length <= MAX_BODY_BYTES || dice.chance(0.5) ? body : body.subarray(0, MAX_BODY_BYTES);
}

type Maker = (dice: Dice, unique: string) => Buffer | string;

const MAKERS: readonly Maker[] = [
  (dice) => dice.bytes(dice.below(80)),
  (dice, unique) => goodMessage(dice, unique),
  (dice, unique) => goodMessage(dice, unique),
  (dice, unique) => damaged(dice, goodMessage(dice, unique)),
  (dice, unique) => damaged(dice, goodMessage(dice, unique)),
  (dice, unique) =>
    Buffer.concat([Buffer.from(`{"id":"${unique}","x":"`), dice.bytes(dice.below(20)), Buffer.from('"}')]),
  (dice, unique) => `{"id":${oddId(dice, unique)},"key":${oddText(dice)},"type":${oddText(dice)}}`,
  (dice, unique) => `{"id":${oddId(dice, unique)},"id":${oddId(dice, unique)},"key":1,"key":${oddText(dice)}}`,
  (dice, unique) => `{"id":"${unique}","n":${oddNumber(dice)}}`,
  (dice) => `{"id":${oddNumber(dice)}}`,
  (dice, unique) => nested(dice, unique),
  (dice) => dice.pick(["", " ", "\n", "null", "true", "0", '""', "[]", "{}", '"x"', "[1]", "\ufeff{}", "{", "}", "\0"]),
  (dice, unique) => encoded(dice, `{"id":"${unique}"}`),
  (dice, unique) => atTheLimit(dice, unique),
];

/** A message that is stored when nobody changes it. */
function goodMessage(dice: Dice, unique: string): string {
  return JSON.stringify({
    id: unique,
    key: `k-${dice.below(50)}`,
    type: "created",
    x: [dice.below(1000), "ü\u{1F600}"],
  });
}

function damaged(dice: Dice, text: string): Buffer {
  const bytes = Buffer.from(text);
  for (let times = 1 + dice.below(3); times > 0; times -= 1) {
    bytes[dice.below(bytes.length)] = dice.chance(0.5) ? dice.below(256) : dice.pick(MEANINGFUL);
  }
  return dice.chance(0.2) ? bytes.subarray(0, dice.below(bytes.length)) : bytes;
}

/** Bytes that mean something to JSON or to UTF-8. */
const MEANINGFUL = [...Buffer.from('"\\{}[]:,0-eu\0 '), 0x80, 0xc0, 0xed, 0xf4, 0xff] as const;

/** A JSON value for the idempotency key. */
function oddId(dice: Dice, unique: string): string {
  return dice.pick([
    `"${unique}"`,
    `"${unique}\\u0000"`,
    `"${unique}\\ud83d"`,
    `"\\udc00${unique}"`,
    `"${unique}\\ud83d\\ude00"`,
    `"${unique}${"k".repeat(dice.pick([200, 250, 256, 1024, 3000, 9000]))}"`,
    `"${unique}'; --\\r\\n\\\\"`,
    "null",
    '""',
    "[]",
    "{}",
    "true",
  ]);
}

/** A JSON value for an attribute. */
function oddText(dice: Dice): string {
  return dice.pick([
    '"a"',
    '"a\\u0000"',
    '"\\ud800"',
    "null",
    '""',
    "1",
    "[1]",
    `"${"t".repeat(dice.pick([1024, 1025, 5000]))}"`,
    '"__proto__"',
  ]);
}

function oddNumber(dice: Dice): string {
  const digits = () => dice.digits(1 + dice.below(40));
  return dice.pick([
    `1${digits()}`,
    `-1${digits()}.${digits()}`,
    `0.${digits()}e${dice.below(400)}`,
    `1e${digits()}`,
    `-1E-${digits()}`,
    `1${"0".repeat(dice.below(5000))}`,
    `0${digits()}`,
    "-",
    "1.",
    "1e",
    "NaN",
    "-0",
  ]);
}

/** Far deeper than a parser that calls itself could go. */
function nested(dice: Dice, unique: string): string {
  const depth = dice.below(dice.chance(0.02) ? 60_000 : 200);
  const [open, close] = dice.pick([
    ["[", "]"],
    ['{"a":', "}"],
    ['[{"a":', "}]"],
  ] as const);
  return `{"id":"${unique}","deep":${open.repeat(depth)}1${close.repeat(dice.chance(0.9) ? depth : dice.below(depth + 1))}}`;
}

function encoded(dice: Dice, text: string): Buffer {
  const utf16 = Buffer.from(text, "utf16le");
  return dice.pick([
    utf16,
    Buffer.from(utf16).swap16(),
    Buffer.from(`\ufeff${text}`),
    Buffer.from(text.replace('":"', '":"\u00e9'), "latin1"),
  ]);
}

/** Valid, and as long as a body may be, or a byte longer or shorter. */
function atTheLimit(dice: Dice, unique: string): string {
  const frame = `{"id":"${unique}","fill":""}`;
  const length = dice.chance(0.5) ? MAX_BODY_BYTES + 1 - dice.below(3) : frame.length + dice.below(200);
  return frame.replace('""', `"${"f".repeat(length - frame.length)}"`);
}
