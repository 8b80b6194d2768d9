const DURATION = /^(\d{1,9})([smhd])$/;
const UNITS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/**
 * Reads a duration (spec, "Value formats").
 *
 * @param text a whole number and one of the suffixes s, m, h, d, such as `30d`
 * @returns ms; undefined for any other text
 */
export function parseDuration(text: string): number | undefined {
  const match = DURATION.exec(text);
  const unit = match?.[2] as keyof typeof UNITS | undefined;
  return unit === undefined ? undefined : Number(match?.[1]) * UNITS[unit];
}
