import type { Clock } from "../../time/clock.ts";
import { sleep } from "../../time/wait.ts";

/** Reads for an operator in turn. @param question equal ones have equal answers. @throws what `read` throws */
export type HeavyReads = <T>(question: string, read: () => Promise<T>) => Promise<T>;

/** Rest behind a read, as a multiple of its time: reads have a sixth of the process, more if they take long. */
const REST_FACTOR = 5;
const LONGEST_REST_MS = 500;

/**
 * Reads for operators, which may take many rows: whatever is asked, and by how many, one runs at a time, and a rest
 * follows it. All that ask a question before its read begins share its answer: none is older than its question.
 */
export function createHeavyReads(clock: Pick<Clock, "monotonic">, wait = (ms: number) => sleep(ms)): HeavyReads {
  /** By question, those whose read has not begun. */
  const asked = new Map<string, Promise<unknown>>();
  let last: Promise<unknown> = Promise.resolve();
  let restsUntil = 0;
  return <T>(question: string, read: () => Promise<T>) => {
    const known = asked.get(question) as Promise<T> | undefined;
    if (known !== undefined) return known;
    const answer = last.then(async () => {
      await wait(Math.max(0, restsUntil - clock.monotonic()));
      asked.delete(question);
      const begunAt = clock.monotonic();
      return await read().finally(() => {
        const now = clock.monotonic();
        restsUntil = now + Math.min(REST_FACTOR * (now - begunAt), LONGEST_REST_MS);
      });
    });
    asked.set(question, answer);
    last = answer.catch(() => {});
    return answer;
  };
}
