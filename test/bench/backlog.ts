import { BODY } from "./body.ts";
import type { Environment } from "./environment.ts";
import { fillOutbox, rawLoop, steadyMean, vacuum } from "./outbox.ts";
import { type Figure, median } from "./report.ts";

/** What a claim and its settlement cost with much in the table: blocked keys, and finished rows. */

const BATCH = 100;
const ROUNDS = 3;

/** (q) 100,000 keys, each with a row that waits for its retry and one behind it, in front of free rows; against free rows alone. */
export async function blockedKeys(environment: Environment): Promise<readonly Figure[]> {
  const keys = 100_000;
  const front = () =>
    environment.sql.query(
      `INSERT INTO outbox (topic, key, payload, attempt, scheduled_at)
       SELECT 'bench', 'blocked-' || n, $1, 1 - behind, now() + (1 - behind) * interval '1 hour'
       FROM generate_series(1, $2) n, generate_series(0, 1) behind`,
      [BODY, keys],
    );
  return [await compare(environment, "(q) claim and settle behind 100,000 keys with a blocked head", front)];
}

/** (r) Two million finished rows in the table, against none. */
export async function finishedMillions(environment: Environment): Promise<readonly Figure[]> {
  const front = () =>
    environment.sql.query(
      `INSERT INTO outbox (topic, key, payload, state)
       SELECT 'bench', 'key-' || n % 500, '{}', 'sent' FROM generate_series(1, 2000000) n`,
    );
  return [await compare(environment, "(r) claim and settle beside 2,000,000 finished rows", front)];
}

const FREE_ROWS = 10_000;

/** @param front puts rows in front of the free ones */
async function compare(environment: Environment, name: string, front: () => Promise<unknown>): Promise<Figure> {
  const measure = async (options: { readonly front?: () => Promise<unknown> }): Promise<number> => {
    await fillOutbox(environment, FREE_ROWS, 500, options);
    await vacuum(environment);
    return steadyMean((await rawLoop(environment, FREE_ROWS, BATCH)).batchMs);
  };
  await measure({});
  const pairs: { ms: number; base: number }[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const before = await measure({});
    const ms = await measure({ front });
    pairs.push({ ms, base: (before + (await measure({}))) / 2 });
  }
  return figure(name, pairs, 1.1, "free rows alone");
}

function figure(
  name: string,
  pairs: readonly { readonly ms: number; readonly base: number }[],
  target: number,
  baseline: string,
): Figure {
  const ratio = median(pairs.map(({ ms, base }) => ms / base));
  return {
    name,
    value: `${median(pairs.map(({ ms }) => ms)).toFixed(2)} ms a batch of ${BATCH}`,
    baseline: `${median(pairs.map(({ base }) => base)).toFixed(2)} ms ${baseline}`,
    ratio,
    target: `<= ${target}`,
    met: ratio <= target,
  };
}
