import { pause } from "./pause.ts";

/**
 * Waits for a step of a broker's client that a server which hangs may never end. A step that fails is over too.
 *
 * @param ms longest wait
 * @param step what is waited for; it goes on behind when the time is over
 */
export async function atMost(ms: number, step: Promise<unknown> | undefined): Promise<void> {
  const over = new AbortController();
  await Promise.race([step?.catch(() => {}), pause(ms, over.signal)]);
  over.abort();
}
