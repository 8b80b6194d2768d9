import { setTimeout as sleep } from "node:timers/promises";

export interface EventuallyOptions {
  /** Default 15,000: a limit for what fails, generous for a machine that does other things beside. */
  readonly timeoutMs?: number;
  /** Default 20. */
  readonly intervalMs?: number;
  /** What is waited for, for the error. */
  readonly label?: string;
}

/**
 * Polls until `check` passes: until it neither throws nor returns `false`.
 *
 * @param check the condition; an assertion that throws, or a function that returns whether it holds
 * @returns what the passing check returned
 * @throws Error with the last failure as its cause when the time is over
 */
export async function eventually<T>(check: () => T | Promise<T>, options: EventuallyOptions = {}): Promise<T> {
  const { timeoutMs = 15_000, intervalMs = 20, label = "the condition" } = options;
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const failure = await attempt(check);
    if ("value" in failure) return failure.value;
    if (performance.now() >= deadline) {
      const last = failure.error instanceof Error ? failure.error.message : String(failure.error);
      throw new Error(`${label} did not hold within ${timeoutMs} ms; last failure: ${last}`, { cause: failure.error });
    }
    await sleep(intervalMs);
  }
}

async function attempt<T>(check: () => T | Promise<T>): Promise<{ readonly value: T } | { readonly error: unknown }> {
  try {
    const value = await check();
    return value === false ? { error: new Error("the check returned false") } : { value };
  } catch (error) {
    return { error };
  }
}
