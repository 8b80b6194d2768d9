import { BODY } from "./body.ts";
import type { Environment } from "./environment.ts";
import { fillOutbox, rawLoop, steadyMean, vacuum } from "./outbox.ts";
import { type Figure, median } from "./report.ts";

/** What a claim and its settlement cost with much in the table: blocked keys, finished rows, and rows that others are to claim. */

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

/**
 * (v) A million rows of a destination without room in front of free rows; against as many finished rows there, which make
 * the table and its indexes as large, and against free rows alone.
 */
export async function excludedFront(environment: Environment): Promise<readonly Figure[]> {
  const million = (state: string) => () =>
    environment.sql.query(
      `INSERT INTO outbox (topic, key, payload, state, destination, routes)
       SELECT 'excluded.' || n, 'excluded-' || n % 500, $1, $2, 'excluded', 'bench' FROM generate_series(1, 1000000) n`,
      [BODY, state],
    );
  const fill = async (options: { readonly front?: () => Promise<unknown> }): Promise<void> => {
    await fillOutbox(environment, FREE_ROWS, 500, options);
    await vacuum(environment);
  };
  const measure = async (options: { readonly front?: () => Promise<unknown> }): Promise<number> => {
    await fill(options);
    return steadyMean((await rawLoop(environment, FREE_ROWS, BATCH)).claimMs);
  };
  await measure({});
  const rounds: { ms: number; alone: number; finished: number }[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const alone = await measure({});
    const ms = await measure({ front: million("pending") });
    rounds.push({ ms, alone, finished: await measure({ front: million("sent") }) });
  }
  const against = (base: "alone" | "finished", baseline: string) =>
    figure(
      "(v) claim of 100 past 1,000,000 rows of a destination without room",
      rounds.map((round) => ({ ms: round.ms, base: round[base] })),
      base === "finished" ? 1.1 : 1.3,
      baseline,
      "a claim",
    );
  return [against("finished", "beside 1,000,000 finished rows"), against("alone", "free rows alone")];
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
  of = `a batch of ${BATCH}`,
): Figure {
  const ratio = median(pairs.map(({ ms, base }) => ms / base));
  return {
    name,
    value: `${median(pairs.map(({ ms }) => ms)).toFixed(2)} ms ${of}`,
    baseline: `${median(pairs.map(({ base }) => base)).toFixed(2)} ms ${baseline}`,
    ratio,
    target: `<= ${target}`,
    met: ratio <= target,
  };
}
