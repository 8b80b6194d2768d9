import type { Clock } from "../../time/clock.ts";
import { sleep } from "../../time/wait.ts";
import { Refusal } from "./requests.ts";

/**
 * Reads for an operator in turn. @param question equal ones have equal answers. @param isGone whether the caller has left.
 * @throws what `read` throws, or Refusal when all callers have left before it begins
 */
export type HeavyReads = <T>(question: string, read: () => Promise<T>, isGone?: () => boolean) => Promise<T>;

/** Rest behind a read, as a multiple of its time: reads have a sixth of the process, more if they take long. */
const REST_FACTOR = 5;
const LONGEST_REST_MS = 500;

/**
 * Reads for operators, which may take many rows: whatever is asked, and by how many, one runs at a time, and a rest
 * follows it. All that ask a question before its read begins share its answer: none is older than its question.
 */
export function createHeavyReads(clock: Pick<Clock, "monotonic">, wait = (ms: number) => sleep(ms)): HeavyReads {
  /** By question, those whose read has not begun. */
  const asked = new Map<string, { readonly answer: Promise<unknown>; readonly callers: (() => boolean)[] }>();
  let last: Promise<unknown> = Promise.resolve();
  let restsUntil = 0;
  return <T>(question: string, read: () => Promise<T>, isGone = () => false) => {
    const known = asked.get(question);
    known?.callers.push(isGone);
    if (known !== undefined) return known.answer as Promise<T>;
    const callers = [isGone];
    const answer = last.then(async () => {
      await wait(Math.max(0, restsUntil - clock.monotonic()));
      asked.delete(question);
      if (callers.every((isGone) => isGone())) throw new Refusal(503, "The caller left before the read began");
      const begunAt = clock.monotonic();
      return await read().finally(() => {
        const now = clock.monotonic();
        restsUntil = now + Math.min(REST_FACTOR * (now - begunAt), LONGEST_REST_MS);
      });
    });
    asked.set(question, { answer, callers });
    last = answer.catch(() => {});
    return answer;
  };
}
