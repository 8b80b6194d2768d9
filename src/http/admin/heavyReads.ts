import { CellError, StoreError } from "../../model/errors.ts";
import type { Clock } from "../../time/clock.ts";
import { sleep } from "../../time/wait.ts";
import { ERRORS } from "../exchange.ts";
import { type HeavyReads, Refusal } from "./operation.ts";

/** Rest behind a read, as a multiple of its time: reads have a sixth of the process, more if they take long. */
const REST_FACTOR = 5;
const LONGEST_REST_MS = 500;
/** A console asks a few questions a second. */
const MOST_WAITING = 100;

/**
 * Reads for operators, which may take many rows: whatever is asked, and by how many, one runs at a time, and a rest
 * follows it. All that ask a question before its read begins share its answer: none is older than its question.
 */
export function createHeavyReads(clock: Pick<Clock, "monotonic">, wait = (ms: number) => sleep(ms)): HeavyReads {
  /** By question, those whose read has not begun. */
  const asked = new Map<string, Asked>();
  let last: Promise<unknown> = Promise.resolve();
  let restsUntil = 0;
  return <T>(question: string, read: () => Promise<T>, isGone = () => false) => {
    const known = asked.get(question);
    known?.callers.push(isGone);
    if (known !== undefined) return known.answer as Promise<T>;
    if (asked.size >= MOST_WAITING) return Promise.reject(new Refusal(503, ERRORS.tooManyReads));
    const run = async (): Promise<T> => {
      if (own.outage === undefined) await wait(Math.max(0, restsUntil - clock.monotonic()));
      asked.delete(question);
      if (own.outage !== undefined) throw own.outage;
      if (own.callers.every((isGone) => isGone())) throw new Refusal(503, "The caller left before the read began");
      const begunAt = clock.monotonic();
      try {
        return await read();
      } catch (error) {
        // Each waiting read would take as long to fail in the same way; of cells, only the first one waits.
        if (error instanceof StoreError && error.code === "unavailable" && !(error instanceof CellError))
          for (const other of asked.values()) other.outage = error;
        throw error;
      } finally {
        const now = clock.monotonic();
        restsUntil = now + Math.min(REST_FACTOR * (now - begunAt), LONGEST_REST_MS);
      }
    };
    const answer = last.then(run);
    const own: Asked = { answer, callers: [isGone], outage: undefined };
    asked.set(question, own);
    last = answer.catch(() => {});
    return answer;
  };
}

interface Asked {
  readonly answer: Promise<unknown>;
  readonly callers: (() => boolean)[];
  /** Of the read before: the database did not answer. */
  outage: StoreError | undefined;
}
