/**
 * Works through a batch that one bad row may poison: when `attempt` answers `split`, the two halves are tried, first half
 * first, so that every good row goes through and the bad one is met alone, in about 2·log2(n) tries.
 *
 * @param items the batch, in order
 * @param attempt handles a part of it; must not answer `split` for a part of one item
 */
export async function bisect<T>(
  items: readonly T[],
  attempt: (part: readonly T[]) => Promise<"done" | "split">,
): Promise<void> {
  if (items.length === 0) return;
  if ((await attempt(items)) === "done") return;
  const middle = Math.ceil(items.length / 2);
  if (middle === items.length) throw new Error("bisect: a part of one item cannot be split");
  await bisect(items.slice(0, middle), attempt);
  await bisect(items.slice(middle), attempt);
}
