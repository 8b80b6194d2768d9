import jsonata from "jsonata";

/**
 * JSONata reads an offset from UTC as the number `hhmm`: `"+05:30"` as five minutes, `"-0530"` as six and a half hours,
 * `"Z"` as `NaN`, without an error. These functions of ours pass it on as JSONata means it.
 */

type FromMillis = (millis: number | undefined, picture?: string, zone?: string) => string | undefined;
type ToMillis = (this: Focus, text: string | undefined, picture?: string) => number | undefined;

/** What JSONata calls a function on. */
interface Focus {
  readonly environment: { readonly timestamp: Date };
}

const builtIn = async <F>(name: string): Promise<F> =>
  ((await jsonata(`$${name}`).evaluate(undefined)) as { readonly implementation: F }).implementation;
const [fromMillis, toMillis] = await Promise.all([builtIn<FromMillis>("fromMillis"), builtIn<ToMillis>("toMillis")]);

/** Makes `$fromMillis`, `$now` and `$toMillis` of an expression take every offset, or throw for what is none. */
export function correctTimeZones(expression: jsonata.Expression): void {
  const format: FromMillis = (millis, picture, zone) =>
    fromMillis(millis, picture, zone === undefined ? undefined : zoneNumber(zone))
      // JSONata gives the minutes behind UTC a sign too, and `[Z1]` writes both signs.
      ?.replaceAll(/(-\d{1,2}:)-(\d{2})/g, "$1$2");
  expression.registerFunction("fromMillis", format, "<n-s?s?:s>");
  expression.registerFunction(
    "now",
    function (this: Focus, picture?: string, zone?: string) {
      return format(this.environment.timestamp.getTime(), picture, zone);
    },
    "<s?s?:s>",
  );
  expression.registerFunction("toMillis", parse, "<s-s?:n>");
}

/** @throws Error for anything but an offset: `Z`, `+5`, `-08`, `+0530`, `+05:30` */
function zoneNumber(zone: string): string {
  const [found, sign, hours, minutes = "00"] = /^(?:Z|([+-]?)(\d{1,2})(?::?([0-5]\d))?)$/i.exec(zone) ?? [];
  if (found === undefined)
    throw new Error(`the time zone ${JSON.stringify(zone)} is no offset from UTC such as "+05:30" or "Z"`);
  if (hours === undefined) return "0";
  // JSONata rounds the hours down, but not the minutes: -0430 is what it takes for -05:30.
  const isSplit = sign === "-" && minutes !== "00";
  if (isSplit && Number(hours) === 0) throw new Error(`the time zone ${JSON.stringify(zone)} is none that exists`);
  return `${sign ?? ""}${Number(hours) - (isSplit ? 1 : 0)}${minutes}`;
}

/** JSONata adds the minutes of an offset to its hours whatever the sign, and finds no offset in `Z`. */
function parse(this: Focus, text: string | undefined, picture?: string): number | undefined {
  const millis = toMillis.call(this, text, picture);
  if (text === undefined || picture === undefined || !/\[[Zz]/.test(picture)) return millis;
  // The picture takes a plus sign only in the place of the offset.
  const withOffset = (at: number, length: number, offset: string) =>
    toMillis.call(this, `${text.slice(0, at)}${offset}${text.slice(at + length)}`, picture);
  for (const { 0: found, 1: hours, 2: separator, 3: minutes, index } of text.matchAll(BEHIND)) {
    const utc = withOffset(index, found.length, `+00${separator}00`);
    if (utc !== undefined) return utc + (Number(hours) * 60 + Number(minutes)) * 60_000;
  }
  const z = millis === undefined ? text.toUpperCase().lastIndexOf("Z") : -1;
  return z < 0 ? millis : (withOffset(z, 1, "+00:00") ?? withOffset(z, 1, "+0000"));
}

/** Offsets behind UTC, and dates that look alike. */
const BEHIND = /-(\d{2})(:?)(\d{2})(?!\d)/g;
