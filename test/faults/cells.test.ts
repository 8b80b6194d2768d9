import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "@jest/globals";
import { citusUrl } from "../support/citus.ts";
import { eventually } from "../support/eventually.ts";
import { History } from "../support/history.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { seeded } from "../support/random.ts";
import { type Service, useServices } from "../support/service.ts";
import { allDelivered, record, sendTraffic } from "../support/traffic.ts";
import { TwoCells } from "../support/twoCells.ts";

const services = useServices();
failOnLeaks();

const KEYS = 40;
const REPLICAS = 3;
const LEASE_MS = 5000;
/** Each kind once; `SVC_FAULTS_MINUTES` makes a long run of it, `SVC_FAULTS_SEED` repeats one. */
const MINUTES = Number(process.env.SVC_FAULTS_MINUTES ?? 0);
const SEED = Number(process.env.SVC_FAULTS_SEED ?? Date.now() % 1_000_000);
const isWatched = process.env.SVC_FAULTS_MINUTES !== undefined;
const print = (line: string) => {
  if (isWatched) process.stderr.write(`${line}\n`);
};

/** What is done to an installation of several cells in traffic, again and again; each part ends what it began. */
class Troubles {
  readonly #cells: TwoCells;
  readonly #history: History;
  readonly #replicas: Service[];
  readonly #random: () => number;
  readonly counts = new Map<string, number>();

  constructor(cells: TwoCells, history: History, replicas: Service[], random: () => number) {
    this.#cells = cells;
    this.#history = history;
    this.#replicas = replicas;
    this.#random = random;
  }

  async next(kind: keyof typeof KINDS): Promise<void> {
    const startedAt = performance.now();
    await KINDS[kind](this);
    this.counts.set(kind, (this.counts.get(kind) ?? 0) + 1);
    print(`${kind}: ${Math.round(performance.now() - startedAt)} ms`);
  }

  pick<T>(choices: readonly T[]): T {
    const [first] = choices;
    if (first === undefined) throw new Error("nothing to choose from");
    return choices[Math.floor(this.#random() * choices.length)] ?? first;
  }

  async kill(): Promise<void> {
    const n = Math.floor(this.#random() * REPLICAS);
    const replica = this.#replicas[n];
    await this.#whatIsInFlightMayRepeat();
    await replica?.kill();
    await this.#whatIsInFlightMayRepeat();
    this.#replicas[n] = await this.#cells.start(SETTINGS);
  }

  async suspend(): Promise<void> {
    const replica = this.pick(this.#replicas);
    replica.process.kill("SIGSTOP");
    await this.#whatIsInFlightMayRepeat();
    await sleep(LEASE_MS * (0.2 + 1.4 * this.#random()));
    await this.#whatIsInFlightMayRepeat();
    replica.process.kill("SIGCONT");
  }

  /** The way to one database hangs, or breaks. */
  async disturb(mode: "held" | "cut"): Promise<void> {
    const { proxy } = this.pick(this.#cells.cells);
    await this.#whatIsInFlightMayRepeat();
    proxy.setMode(mode);
    await sleep(1000 + this.#random() * (isWatched ? 7000 : 3000));
    await this.#whatIsInFlightMayRepeat();
    proxy.setMode("open");
    await this.#whatIsInFlightMayRepeat();
  }

  /** Citus moves a cell to the other worker, or back. */
  async moveSchema(): Promise<void> {
    const { name, query } = this.pick(this.#cells.cells);
    const [to] = await query<{ node: string; port: number }>(
      `SELECT n.nodename AS node, n.nodeport AS port FROM pg_dist_node n WHERE n.shouldhaveshards AND (n.nodename, n.nodeport) <>
         (SELECT s.nodename, s.nodeport FROM citus_shards s WHERE s.table_name = 'inbox'::regclass)`,
    );
    const mode = this.pick(["block_writes", "force_logical"]);
    print(`${name} to port ${to?.port}, ${mode}`);
    const move = `SELECT citus_schema_move(current_schema()::text::regnamespace, $1, $2, '${mode}')`;
    let isMoved = false;
    // It fails until Citus has cleaned up what the last move left there.
    const moved = eventually(() => query(move, [to?.node, to?.port]), { timeoutMs: 60_000 }).finally(() => {
      isMoved = true;
    });
    // Outcomes wait for the end of the move, which may come after that of their lease.
    const marked = async () => {
      while (!isMoved) {
        await this.#whatIsInFlightMayRepeat();
        await sleep(100);
      }
    };
    await Promise.all([moved, marked()]);
  }

  /** A fault hits whatever is in delivery about now: nobody can know whether it has arrived. */
  async #whatIsInFlightMayRepeat(): Promise<void> {
    for (const { query } of this.#cells.cells) {
      const rows = await query<{ id: string }>(
        "SELECT headers->>'x-idempotency-key' AS id FROM outbox WHERE state IN ('pending', 'processing')",
      );
      this.#history.mayRepeat(rows.map(({ id }) => id));
    }
  }
}

const KINDS = {
  kill: (troubles) => troubles.kill(),
  suspend: (troubles) => troubles.suspend(),
  hold: (troubles) => troubles.disturb("held"),
  cut: (troubles) => troubles.disturb("cut"),
  "moved schema": (troubles) => troubles.moveSchema(),
} satisfies Record<string, (troubles: Troubles) => Promise<void>>;

const SETTINGS = { outbox: { claimTimeoutMs: LEASE_MS, pollIntervalMs: 50 } };

test(
  "cells under faults: nothing is lost, reordered, stored twice or repeated without need",
  async () => {
    process.stderr.write(isWatched ? `SVC_FAULTS_SEED=${SEED}\n` : "");
    const random = seeded(SEED);
    const receiver = await services.receiver();
    const history = new History();
    record(receiver, history);
    const isCitus = citusUrl() !== undefined;
    const cells = await (isCitus ? TwoCells.openFour : TwoCells.open)(services, receiver);
    const replicas = [await cells.start(SETTINGS)];
    while (replicas.length < REPLICAS) replicas.push(await cells.start(SETTINGS));

    let end: () => void = () => {};
    const until = new Promise<void>((resolve) => {
      end = resolve;
    });
    // Each message goes to whatever replica runs at that moment.
    const to = Array.from({ length: REPLICAS }, (_, n) => ({
      post: (...given: Parameters<Service["post"]>) => (replicas[n] as Service).post(...given),
    }));
    const limits = { patienceMs: 120_000, mostUndelivered: 2000 };
    const sending = sendTraffic({ history, to, keys: KEYS, messagesPerKey: 1, until, ...limits });
    const troubles = new Troubles(cells, history, replicas, random);
    const every = Object.keys(KINDS) as (keyof typeof KINDS)[];
    const names = every.filter((kind) => kind !== "moved schema" || isCitus);
    const endsAt = performance.now() + MINUTES * 60_000;
    // Each kind once, then at random.
    for (let n = 0; n < names.length || performance.now() < endsAt; n += 1) {
      await troubles.next(names[n] ?? troubles.pick(names));
      print(`${history.acknowledgedCount} messages, ${history.missingCount} on their way`);
    }
    end();
    await sending.catch((error: unknown) => {
      throw new Error(`SVC_FAULTS_SEED=${SEED}: the senders failed`, { cause: error });
    });
    await allDelivered(history, 90_000);
    print(`${history.acknowledgedCount} messages, ${history.repeated.length} more than once; ${[...troubles.counts]}`);
    expect({ seed: SEED, violations: history.violations() }).toEqual({ seed: SEED, violations: [] });
    await expectEachStoredOnce(cells, history);
    await expectAllKnown(replicas, history);
    await expectEachStoredOnce(cells, history);
    for (const replica of replicas) expect((await replica.stop()).code).toBe(0);
  },
  MINUTES * 120_000 + 300_000,
);

/** Every message has one outbox row in all cells together. */
async function expectEachStoredOnce(cells: TwoCells, history: History): Promise<void> {
  const settled = "SELECT 1 FROM outbox WHERE state <> 'sent' UNION ALL SELECT 1 FROM inbox WHERE state <> 'processed'";
  for (const { query } of cells.cells) await eventually(async () => expect(await query(settled)).toEqual([]));
  const ids = await Promise.all(
    cells.cells.map(({ query }) => query<{ id: string }>("SELECT headers->>'x-idempotency-key' AS id FROM outbox")),
  );
  const stored = ids.flat().map(({ id }) => id);
  expect(stored.length).toBe(new Set(stored).size);
  expect(stored.length).toBeGreaterThanOrEqual(history.acknowledgedCount);
}

/** The last messages of each key are duplicates, whichever replica gets them. */
async function expectAllKnown(replicas: readonly Service[], history: History): Promise<void> {
  const numbers = new Map<string, number>();
  for (const id of history.acknowledgedIds) {
    const [, key = "", n = ""] = id.split("-");
    numbers.set(key, Math.max(numbers.get(key) ?? 0, Number(n)));
  }
  for (const [key, last] of numbers) {
    for (const n of [0, Math.floor(last / 2), last]) {
      const message = { id: `m-${key}-${n}`, key: `key-${key}`, type: "created", n };
      const answer = await replicas[n % replicas.length]?.post(message);
      expect([message.id, answer?.status]).toEqual([message.id, 200]);
    }
  }
}
