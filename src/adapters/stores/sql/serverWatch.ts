/**
 * Watches over work that may take as long as it needs, such as the migration of a large table, but not longer than there is a server that does it:
 * a connection whose answers get lost looks just the same from here.
 *
 * @param work what is waited for
 * @param ask asks the server over another connection; rejects when it does not answer or no longer does the work
 * @param hangUp ends the connection of the work, which is not waited for any more
 * @param everyMs time between two questions, in ms
 * @throws what `work` throws; after a hang-up the error of `ask`
 */
export async function whileServed<T>(
  work: Promise<T>,
  ask: () => Promise<void>,
  hangUp: () => void,
  everyMs: number,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  let ended = false;
  const givenUp = new Promise<never>((_, reject) => {
    const answered = (): void => {
      if (!ended) timer = setTimeout(() => ask().then(answered, failed), everyMs);
    };
    const failed = (error: unknown): void => {
      if (ended) return;
      reject(error);
      hangUp();
    };
    answered();
  });
  try {
    return await Promise.race([work, givenUp]);
  } finally {
    ended = true;
    clearTimeout(timer);
  }
}

/** How often a database is asked while it migrates, in ms. */
export const ASK_EVERY_MS = 5000;
