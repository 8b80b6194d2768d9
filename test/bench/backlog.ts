import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import type { ClaimToken } from "../../src/model/rows.ts";
import { BODY } from "./body.ts";
import type { Environment } from "./environment.ts";
import { fillOutbox, vacuum } from "./outbox.ts";
import { type Figure, median } from "./report.ts";

/** What a claim and its settlement cost with much in the table: blocked keys, finished rows, and a transaction that keeps old versions alive. */

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
    return await cost(environment, FREE_ROWS);
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

/** Mean of claim and settlement of a batch, in ms, without the first ones, which find the front and warm the caches. */
async function cost({ store }: Environment, rows: number): Promise<number> {
  const ms: number[] = [];
  for (let done = 0; done < rows; done += BATCH) {
    const startedAt = performance.now();
    const claim = await store.outbox.claim({
      limit: BATCH,
      maxBytes: 1 << 30,
      token: randomUUID() as ClaimToken,
      heldTokens: [],
      leaseMs: 30_000,
      claimTimeoutMs: 300_000,
    });
    if (claim.rows.length !== BATCH) throw new Error(`${claim.rows.length} rows were claimed instead of ${BATCH}`);
    await store.outbox.settle(claim.rows.map(({ id, claimToken }) => ({ id, claimToken, kind: "sent" })));
    ms.push(performance.now() - startedAt);
  }
  const steady = ms.slice(Math.floor(ms.length / 5));
  return steady.reduce((sum, each) => sum + each, 0) / steady.length;
}

const PINNED_MINUTES = Number(process.env.BENCH_PINNED_MINUTES ?? 5);
const PER_SECOND = 800;

/**
 * (s) 800 messages a second are inserted, claimed and settled while another transaction holds its snapshot for five minutes, so that no version of a
 * finished row can be cleaned away: the cost of a batch in the last half minute against that in the first.
 */
export async function pinnedSnapshot(environment: Environment): Promise<readonly Figure[]> {
  const { sql, url } = environment;
  await fillOutbox(environment, 1000, 500);
  await vacuum(environment);
  const holder = new pg.Client({ connectionString: url });
  await holder.connect();
  await holder.query("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox");
  const costs: { readonly at: number; readonly ms: number }[] = [];
  const startedAt = performance.now();
  const endsAt = startedAt + PINNED_MINUTES * 60_000;
  for (let second = 1; performance.now() < endsAt; second += 1) {
    await sql.query(
      "INSERT INTO outbox (topic, key, payload) SELECT 'bench', 'key-' || (n % 500), $1 FROM generate_series(1, $2) n",
      [BODY, PER_SECOND],
    );
    const ms = await cost(environment, PER_SECOND);
    costs.push({ at: performance.now() - startedAt, ms });
    await sleep(Math.max(0, startedAt + second * 1000 - performance.now()));
  }
  await holder.query("ROLLBACK");
  await holder.end();
  const window = Math.min(30_000, (PINNED_MINUTES * 60_000) / 4);
  const first = median(costs.filter(({ at }) => at < window).map(({ ms }) => ms));
  const last = median(costs.filter(({ at }) => at > PINNED_MINUTES * 60_000 - window).map(({ ms }) => ms));
  return [
    figure(
      `(s) claim and settle after ${PINNED_MINUTES} minutes of ${PER_SECOND} messages/s under an old snapshot`,
      [{ ms: last, base: first }],
      1.2,
      "in the first half minute",
    ),
  ];
}
