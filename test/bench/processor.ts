import { type Environment, type Program, processorMs } from "./environment.ts";

/** Processor time so far, in ms: of each process, by what it does. */
export type Spent = Readonly<Record<string, ReadonlyMap<number, number>>>;

/**
 * Reads the processor time of programs and of the database: its sessions, and what works in its background.
 *
 * @param programs by the names that the figures show
 * @param application the name of the sessions that count; all, and the background, without it
 */
export async function processorSpent(
  { sql }: Pick<Environment, "sql">,
  programs: Readonly<Record<string, Program>>,
  application?: string,
): Promise<Spent> {
  const { rows } = await sql.query("SELECT pid FROM pg_stat_activity WHERE $1::text IS NULL OR application_name = $1", [
    application ?? null,
  ]);
  const pids: Readonly<Record<string, readonly number[]>> = {
    database: rows.map(({ pid }) => Number(pid)),
    ...Object.fromEntries(Object.entries(programs).map(([name, { pid }]) => [name, [pid]])),
  };
  return Object.fromEntries(Object.entries(pids).map(([name, all]) => [name, new Map(all.flatMap(spentBy))]));
}

/** None if the process has ended since. */
function spentBy(pid: number): [number, number][] {
  try {
    return [[pid, processorMs(pid)]];
  } catch {
    return [];
  }
}

/** Processor time between two readings, in us a message by what spent it; processes that ended in between are left out. */
export function usAMessage(from: Spent, to: Spent, messages: number): Readonly<Record<string, number>> {
  const spent = (name: string): number =>
    [...(to[name] ?? [])].reduce((sum, [pid, ms]) => sum + ms - (from[name]?.get(pid) ?? 0), 0);
  return Object.fromEntries(Object.keys(to).map((name) => [name, (spent(name) * 1000) / messages]));
}

export const sumOf = (parts: Readonly<Record<string, number>>): number =>
  Object.values(parts).reduce((sum, us) => sum + us, 0);

/** `352 us: service 140, database 96, sender 62, receiver 54` */
export function inWords(parts: Readonly<Record<string, number>>): string {
  const sorted = Object.entries(parts).toSorted(([, a], [, b]) => b - a);
  return `${Math.round(sumOf(parts))} us: ${sorted.map(([name, us]) => `${name} ${Math.round(us)}`).join(", ")}`;
}
