import { randomUUID } from "node:crypto";
import type { ClaimToken } from "../../src/model/rows.ts";
import { BODY } from "./body.ts";
import { type Environment, type Program, until } from "./environment.ts";

/** A poller that can keep up with a fast receiver. */
export const BUSY_POLLER = { OUTBOX_BATCHSIZE: 500, OUTBOX_CONCURRENCY: 64, DATABASE_POOLSIZE: 10 } as const;

/**
 * Fills the outbox anew; all rows appear with one commit.
 *
 * @param options.atRandom keys in an order that looks random, not one after the other
 * @param options.blocked rows of one key in front, whose first waits for its retry
 * @param options.front fills in what else stands in front
 */
export async function fillOutbox(
  { sql }: Environment,
  rows: number,
  keys: number,
  {
    atRandom = false,
    blocked = 0,
    front,
  }: {
    readonly atRandom?: boolean;
    readonly blocked?: number;
    readonly front?: () => Promise<unknown>;
  } = {},
): Promise<void> {
  await sql.query("TRUNCATE outbox");
  await sql.query("BEGIN");
  await front?.();
  if (blocked > 0) {
    await sql.query(
      "INSERT INTO outbox (topic, key, payload) SELECT 'bench', 'blocked', $1 FROM generate_series(1, $2)",
      [BODY, blocked],
    );
    await sql.query(
      "UPDATE outbox SET attempt = 1, scheduled_at = now() + interval '1 hour' WHERE sequence = (SELECT min(sequence) FROM outbox)",
    );
  }
  const numberOfKey = atRandom ? "(hashint4(n::int)::bigint + 2147483648) % $3" : "n % $3";
  await sql.query(
    `INSERT INTO outbox (topic, key, payload) SELECT 'bench', 'key-' || (${numberOfKey}), $1 FROM generate_series(1, $2) n`,
    [BODY, rows, keys],
  );
  await sql.query("COMMIT");
}

/** Brings statistics, visibility and the log up to date, so that no scenario pays for the one before. */
export async function vacuum({ sql }: Pick<Environment, "sql">): Promise<void> {
  await sql.query("VACUUM (ANALYZE) outbox");
  await sql.query("VACUUM (ANALYZE) inbox");
  await sql.query("CHECKPOINT");
}

/** Resolves when no outbox row waits or runs. */
export async function untilSettled({ sql }: Environment): Promise<void> {
  await until(async () => {
    const { rows } = await sql.query(
      "SELECT NOT EXISTS (SELECT FROM outbox WHERE state IN ('pending', 'processing')) AS done",
    );
    return (rows[0] as { done: boolean }).done;
  });
}

/** Lets a suspended poller drain the outbox, and suspends it again. @returns ms */
export async function timeDrain(environment: Environment, poller: Program): Promise<number> {
  process.kill(poller.pid, "SIGCONT");
  const startedAt = performance.now();
  await untilSettled(environment);
  const took = performance.now() - startedAt;
  process.kill(poller.pid, "SIGSTOP");
  return took;
}

/** What the raw loop took, in ms: by claim, and in all. */
export interface RawLoopTimes {
  readonly claimMs: readonly number[];
  readonly totalMs: number;
}

/** The raw loop: claims and completes batch after batch on one connection, delivering nothing. Rows of the topic `bench` alone are claimed. */
export async function rawLoop({ store }: Environment, rows: number, batch: number): Promise<RawLoopTimes> {
  const claimMs: number[] = [];
  const startedAt = performance.now();
  for (let done = 0; done < rows; ) {
    const claimedAt = performance.now();
    const claim = await store.outbox.claim({
      limit: batch,
      maxBytes: 1 << 30,
      token: randomUUID() as ClaimToken,
      heldTokens: [],
      leaseMs: 30_000,
      claimTimeoutMs: 300_000,
      queues: {
        room: new Map([["bench", batch]]),
        routing: {
          listOf: () => undefined,
          destinationOf: (topic) => (topic === "bench" ? "bench" : "excluded"),
          hash: "bench",
        },
      },
    });
    claimMs.push(performance.now() - claimedAt);
    if (claim.rows.length === 0) throw new Error("the raw loop found no rows");
    await store.outbox.settle(claim.rows.map(({ id, claimToken }) => ({ id, claimToken, kind: "sent" })));
    done += claim.rows.length;
  }
  return { claimMs, totalMs: performance.now() - startedAt };
}

/** Without the first ones, which find the front and warm the caches, as those of a process that has run for a while have done. */
export function steadyMean(ms: readonly number[]): number {
  const steady = ms.slice(Math.floor(ms.length / 5));
  return steady.reduce((sum, each) => sum + each, 0) / steady.length;
}
