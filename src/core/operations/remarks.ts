import type { OverviewShown } from "./shown.ts";

/**
 * What is wrong with messages rather than with a part of the installation, a sentence each: refusals, aggregate ids
 * that no message has, rows without a destination.
 *
 * @param minutes of the figures
 */
export function remarksOf(
  { at, sources, unrouted }: Pick<OverviewShown, "at" | "sources" | "unrouted">,
  minutes: number,
): readonly string[] {
  const period = `in the last ${minutes} minutes`;
  const { dead, parked, lastDiedAt, topics } = unrouted;
  return [
    ...sources.flatMap(({ name, refusals }) => {
      const counts = Object.entries(refusals ?? {}).toSorted(([, a], [, b]) => b - a);
      const all = counts.reduce((sum, [, count]) => sum + count, 0);
      const reasons = counts.map(([reason, count]) => `${reason} (${count})`).join(", ");
      return all === 0 ? [] : [`${name} refused ${all === 1 ? "1 request" : `${all} requests`} ${period}: ${reasons}`];
    }),
    ...sources.flatMap(({ name, withoutAggregateId, minutes: counted }) => {
      const all = (counted ?? []).reduce((sum, { received, duplicate }) => sum + received + duplicate, 0);
      if (withoutAggregateId === null || withoutAggregateId === 0 || withoutAggregateId < all) return [];
      return [`no message of ${name} had its configured aggregate id ${period}: nothing keeps their order`];
    }),
    ...(diedWithinDay(lastDiedAt, at) || parked > 0
      ? [`${rowsHave(dead + parked)} no destination (svc explain topic); topics: ${topics.join(", ")}`]
      : []),
  ];
}

/** Somebody who comes in the morning must find what died at night. */
export const diedWithinDay = (lastDiedAt: Date | null, at: Date): boolean =>
  lastDiedAt !== null && at.getTime() - lastDiedAt.getTime() < DAY_MS;

const DAY_MS = 86_400_000;
const rowsHave = (count: number): string => (count === 1 ? "1 row has" : `${count} rows have`);
