import { bucketKeyOf, bucketOf } from "../../../src/model/cells.ts";
import type { ClaimToken, MessageId, NewInboxRow } from "../../../src/model/rows.ts";
import type { BucketAt } from "../../../src/ports/bucketStore.ts";
import { inboxRow } from "../../conformance/store/harness.ts";
import { manualTime } from "../../support/manualTime.ts";
import { moveCommand, type PortCell, Receiving } from "./actors.ts";
import { type Call, Calls, type Done } from "./calls.ts";
import { Database } from "./database.ts";
import { Ledger } from "./ledger.ts";
import { areHeard, hasHalfMoves, haveHeardAll, isUntold } from "./limits.ts";
import { MemoryCell } from "./memoryCell.ts";
import {
  type Answers,
  type CallFate,
  KEYS,
  MOVERS,
  type Plan,
  PROCESSES,
  type Progress,
  type Step,
  type StepOf,
} from "./steps.ts";
import { Trace } from "./trace.ts";

const KEY_NAMES = Array.from({ length: KEYS }, (_, n) => `key-${n}`);
const BUCKETS = KEY_NAMES.map(bucketOf);
const LEASE_OVER_MS = 11_000;
/** After which whoever reads the maps has mended them. */
const REFRESHES = 2;
const MOST_CALLS = 20_000;
const ALL: Answers = { calls: Number.POSITIVE_INFINITY, pick: 0, fate: "waits" };

interface Running {
  readonly actor: string;
  readonly aborting: AbortController;
  isOver: boolean;
}

/**
 * Processes that receive messages, movers and databases of cells, in virtual time. The processes and movers are the real
 * ones; each of their calls is done and answered when a step says so, so that the same plan makes the same run.
 *
 * What docs/cells.md does not promise is left out: a second cell goes back once all processes have read what became of the
 * first one, and the operator has done what they ask for; no cell that a process has not read goes away, or is slow,
 * beside one that went back; no process starts then; nobody is stopped, while a cell goes back, between a bucket's leaving
 * it and opening in the next one, nor, while a second one does, where the next one is being told of it.
 */
export class World {
  readonly #time = manualTime(0, TURNS);
  readonly #calls = new Calls();
  readonly #ledger = new Ledger();
  readonly #databases: readonly Database[];
  readonly #processes: Receiving[] = [];
  readonly #movers: (Running | undefined)[] = Array.from({ length: MOVERS });
  /** The cell that has gone back since all processes have read all cells. */
  #goneBack: Database | undefined;
  #restores = 0;
  /** Processes whose call to a cell broke since then, with the cell. */
  readonly #brokenSince = new Set<string>();
  #made = 0;
  /** Buckets of which a mover's call has opened them in its target, with all of their rows. */
  readonly #opened = new Set<string>();
  /** What happened, for people. */
  readonly trace = new Trace();

  constructor(cells: number) {
    this.#databases = Array.from({ length: cells }, (_, n) => {
      const name = String.fromCharCode("a".charCodeAt(0) + n);
      const tables = new MemoryCell(`${name}0`, () => this.#time.clock.now());
      // As where no cell had any bucket: but all of them would take the time of the maps.
      if (n === 0) tables.open(BUCKETS.map((bucket) => ({ bucket, epoch: 1 })));
      return new Database(name, tables, (database, call) => this.#judge(database, call));
    });
  }

  /** @returns which rules were broken */
  async run(steps: Plan["steps"]): Promise<readonly string[]> {
    const { setTimeout: set, clearTimeout: clear } = globalThis;
    Object.assign(globalThis, {
      setTimeout: (callback: () => void, ms: number) => this.#time.timer(ms, callback),
      clearTimeout: (cancel: (() => void) | undefined) => cancel?.(),
    });
    try {
      for (let n = 0; n < PROCESSES; n += 1) await this.#start(n, ALL);
      for (const step of steps) {
        await this.#take(step);
        if (this.#ledger.broken.length > 0) return this.#ledger.broken;
      }
      await this.#end();
      return this.#ledger.broken;
    } finally {
      Object.assign(globalThis, { setTimeout: set, clearTimeout: clear });
    }
  }

  async #take(step: Step): Promise<void> {
    this.trace.note(step.does, step);
    switch (step.does) {
      case "receive":
        return await this.#receive(step);
      case "repeat":
        return await this.#repeat(step);
      case "refresh":
        this.#processes[step.process]?.refresh();
        return await this.#answer(step.process, step.answers);
      case "answer":
        return await this.#answer(step.process, step.answers);
      case "move":
        return await this.#move(step);
      case "advance":
        return await this.#advance(step.mover, step.progress);
      case "kill":
        return this.#kill(step.mover);
      case "deliver":
        return this.#deliver(this.#database(step.cell), step.isRelayedOnly);
      case "elapse":
        return await this.#elapse(step.ms);
      case "goAway":
        return this.#goAway(step);
      case "comeBack":
        this.#database(step.cell).away = undefined;
        return;
      case "restart":
        this.#database(step.cell).restart();
        return await this.#breakAll(this.#database(step.cell), step.areBroken);
      case "restore":
        return await this.#restore(step);
      case "start":
        return await this.#restartProcess(step);
      case "settle":
        return await this.#mend();
    }
  }

  async #receive({ process, keys, answers, isDelivered }: StepOf<"receive">): Promise<void> {
    const rows = keys.map((key) => this.#row(KEY_NAMES[key] ?? "", `m${this.#made + 1}`));
    this.#processes[process]?.receive(rows);
    await this.#answer(process, answers);
    if (isDelivered) for (const database of this.#databases) this.#deliver(database);
  }

  async #repeat({ process, which, answers }: StepOf<"repeat">): Promise<void> {
    const known = [...this.#ledger.accepted];
    const one = which === null ? undefined : known[which % Math.max(1, known.length)];
    for (const [idempotencyKey, { aggregateId }] of one === undefined ? known : [one])
      this.#processes[process]?.receive([this.#row(aggregateId ?? "", idempotencyKey)]);
    await this.#answer(process, answers);
  }

  #row(aggregateId: string, idempotencyKey: string): NewInboxRow {
    this.#made += 1;
    const id = `id-${String(this.#made).padStart(4, "0")}` as MessageId;
    return inboxRow({ id, idempotencyKey, aggregateId });
  }

  async #move({ mover, keys, to, progress }: StepOf<"move">): Promise<void> {
    const current = this.#movers[mover];
    if (current !== undefined && !current.isOver) return;
    const buckets = keys.map((n) => BUCKETS[n] ?? 0);
    const target = this.#database(to);
    // One that has them moves them to the next one.
    const isThere = buckets.every((bucket) => target.now.buckets.get(bucket)?.state === "open");
    await this.#command(mover, buckets, this.#database(isThere ? to + 1 : to).name);
    await this.#advance(mover, progress);
  }

  async #command(mover: number, buckets: readonly number[], to: string): Promise<void> {
    this.#made += 1;
    const actor = `mover ${this.#made}`;
    const running: Running = { actor, aborting: new AbortController(), isOver: false };
    this.#movers[mover] = running;
    let tokens = 0;
    const newToken = () => {
      tokens += 1;
      return `${actor} ${tokens}` as ClaimToken;
    };
    const { clock } = this.#time;
    const { signal } = running.aborting;
    const command = new RegExp(`run svc cells move --bucket \\d+ --to ${to}$`);
    const told = buckets.filter((bucket) => this.#placesOf(bucket).every((reason) => command.test(reason ?? "")));
    moveCommand({ cells: this.#cellsFor(actor), buckets, to, told, newToken, clock, signal }).then(
      (results) => {
        running.isOver = true;
        for (const { bucket, outcome } of results) {
          if (outcome === "moved" && !this.#opened.has(`${actor}: ${bucket}`))
            this.#ledger.broken.push(`the move of ${bucket} to ${to} tells of success, and has not opened it there`);
        }
      },
      (error: unknown) => {
        running.isOver = true;
        this.#ledger.broken.push(`the command fails: ${String(error)}`);
      },
    );
    await this.#settle();
  }

  async #advance(mover: number, progress: Progress): Promise<void> {
    const running = this.#movers[mover];
    if (running === undefined) return;
    for (let n = 0, seen = 0; n < MOST_CALLS; n += 1) {
      const [call] = this.#calls.ready(running.actor);
      if (call === undefined) return;
      if (call.method === progress?.method) {
        seen += 1;
        if (seen > progress.after) {
          await this.#meetOfMover(mover, call, progress.fate);
          if (!ENDS.has(progress.fate)) return;
          return await this.#advance(mover, undefined);
        }
      }
      this.#calls.answer(call);
      await this.#settle();
    }
    throw new Error("a mover never ends");
  }

  async #meetOfMover(mover: number, call: Call, fate: NonNullable<Progress>["fate"]): Promise<void> {
    if (fate === "is killed done") call.do();
    if (fate === "is killed" || fate === "is killed done") return this.#kill(mover);
    if (fate !== "is aborted") return await this.#meet(call, fate);
    this.#movers[mover]?.aborting.abort(new Error("the command was ended"));
    await this.#settle();
  }

  async #meet(call: Call, fate: CallFate): Promise<void> {
    const isBroken = fate === "breaks" || fate === "breaks done";
    if (isBroken && this.#goneBack !== undefined && call.cell !== this.#goneBack) {
      // A cell that fails twice in a row is away.
      const way = `${call.actor} ${call.cell.name}`;
      if (this.#brokenSince.has(way)) return;
      this.#brokenSince.add(way);
    }
    if (fate === "is done" || fate === "breaks done") call.do();
    if (isBroken) this.#calls.break(call);
    await this.#settle();
  }

  #kill(mover: number): void {
    this.#calls.forget(this.#movers[mover]?.actor ?? "");
    this.#movers[mover] = undefined;
  }

  #goAway({ cell, away }: StepOf<"goAway">): void {
    const database = this.#database(cell);
    // A process that has not heard what it says takes for true what the other one does: docs/cells.md.
    if (this.#goneBack !== undefined && this.#goneBack !== database && !areHeard(this.#processes, database)) return;
    database.away = away;
  }

  async #restore({ cell, changes, writes, areBroken }: StepOf<"restore">): Promise<void> {
    const database = this.#database(cell);
    if (this.#goneBack !== undefined && this.#goneBack !== database) await this.#mend();
    const away = this.#databases.filter((each) => each !== database && each.away !== undefined);
    if (!away.every((each) => areHeard(this.#processes, each)) || !haveHeardAll(this.#processes)) return;
    if (this.#isOperatorAsked()) return;
    if (isUntold(database.name, database.before(changes, writes), this.#databases)) return;
    if (hasHalfMoves(database, this.#databases) || this.#isLateNoteOnItsWay()) await this.#letEnd();
    database.restore(changes, writes);
    this.#goneBack = database;
    this.#restores += 1;
    await this.#breakAll(database, areBroken);
  }

  /** Nobody who knows that a bucket has left takes as long to open it as a cell does to go back. */
  async #letEnd(): Promise<void> {
    for (let n = 0; n < MOVERS; n += 1) await this.#advance(n, undefined);
    await this.#answerProcesses();
  }

  /** Whether a cell is being told of a bucket that comes, after one has gone back. */
  #isLateNoteOnItsWay(): boolean {
    const isNote = ({ method, isDone }: Call) => method === "expect" && !isDone;
    return this.#restores > 0 && this.#databases.some((database) => this.#calls.to(database).some(isNote));
  }

  /** Whether an operator is told to run a command, and has not yet done so. */
  #isOperatorAsked(): boolean {
    return BUCKETS.some((bucket) => this.#placesOf(bucket).some((reason) => reason?.includes("run svc cells")));
  }

  async #breakAll(database: Database, areBroken: boolean): Promise<void> {
    if (!areBroken) return;
    for (const call of this.#calls.to(database)) this.#calls.break(call);
    await this.#settle();
  }

  async #restartProcess({ process, isDone, answers }: StepOf<"start">): Promise<void> {
    const isSafe = this.#goneBack === undefined || this.#databases.every(({ away }) => away === undefined);
    if (!isSafe) return;
    if (isDone) for (const call of this.#calls.ready(processName(process))) call.do();
    this.#calls.forget(processName(process));
    await this.#start(process, this.#goneBack === undefined ? answers : ALL);
  }

  async #start(process: number, answers: Answers): Promise<void> {
    const started = new Receiving(this.#cellsFor(processName(process)), this.#time.clock);
    this.#processes[process] = started;
    started.refresh();
    await this.#answer(process, answers);
  }

  #database(cell: number): Database {
    return this.#databases[cell % this.#databases.length] as Database;
  }

  #cellsFor(actor: string): readonly PortCell[] {
    return this.#databases.map((database) => ({
      name: database.name,
      store: { buckets: this.#calls.port(actor, database) },
    }));
  }

  #deliver(database: Database, isRelayedOnly = false): void {
    if (database.away !== undefined) return;
    database.tables.relay();
    database.changed();
    if (isRelayedOnly) return;
    for (const { idempotencyKey } of database.tables.deliver()) this.#ledger.delivered(idempotencyKey);
    database.changed();
  }

  async #answer(process: number, { calls, pick, fate }: Answers): Promise<void> {
    await this.#settle();
    for (let n = 0; ; n += 1) {
      const call = picked(this.#calls.ready(processName(process)), pick);
      if (call === undefined) return;
      if (n === calls) return await this.#meet(call, fate);
      if (n > MOST_CALLS) throw new Error("a process never waits");
      this.#calls.answer(call);
      await this.#settle();
    }
  }

  async #answerProcesses(): Promise<void> {
    for (let n = 0; n < PROCESSES; n += 1) await this.#answer(n, ALL);
  }

  /** Nothing is answered meanwhile. */
  async #elapse(ms: number): Promise<void> {
    // A cell that is slower than others for a second is away.
    if (this.#goneBack !== undefined) await this.#answerProcesses();
    for (let left = ms; left > 0; ) {
      const next = Math.min(left, Math.max(1, this.#time.pending()[0] ?? left));
      await this.#time.advance(next);
      left -= next;
    }
    if (this.#goneBack !== undefined) await this.#answerProcesses();
  }

  /** All cells answer, and all processes have read what they say. */
  async #mend(): Promise<void> {
    for (const database of this.#databases) database.away = undefined;
    await this.#answerProcesses();
    for (let n = 0; n < REFRESHES; n += 1) {
      for (const process of this.#processes) {
        process.refresh();
        await this.#answerProcesses();
      }
    }
    this.#goneBack = undefined;
    this.#brokenSince.clear();
  }

  /** No mover lives, all cells answer, and all is delivered. */
  async #end(): Promise<void> {
    for (let n = 0; n < MOVERS; n += 1) this.#kill(n);
    for (const database of this.#databases) database.away = undefined;
    await this.#elapse(LEASE_OVER_MS);
    await this.#mend();
    for (const database of this.#databases) this.#deliver(database);
    for (const bucket of BUCKETS) await this.#requirePlace(bucket);
    this.#requireKnown();
    await this.#requireReceipts();
  }

  /** Each process stores new messages. */
  async #requireReceipts(): Promise<void> {
    for (const [n, process] of this.#processes.entries()) {
      const rows = KEY_NAMES.map((key) => this.#row(key, `m${this.#made + 1}`));
      process.receive(rows);
      await this.#answer(n, ALL);
      if (!rows.every(({ idempotencyKey }) => this.#ledger.accepted.has(idempotencyKey)))
        this.#ledger.broken.push(`the process ${n} stores no messages`);
    }
  }

  async #requirePlace(bucket: number): Promise<void> {
    const [reason] = this.#placesOf(bucket);
    if (reason !== undefined && this.#restores > 0) {
      if (this.#databases.every(({ now }) => now.buckets.size > 0))
        this.#ledger.broken.push(`an operator is asked although each cell knows of buckets: ${reason}`);
      const [, to] = /run svc cells move --bucket \d+ --to (\S+)$/.exec(reason) ?? [];
      if (to === undefined) return void this.#ledger.broken.push(`nothing brings the bucket back: ${reason}`);
      await this.#command(0, [bucket], to);
      await this.#advance(0, undefined);
      await this.#mend();
    }
    const missing = this.#placesOf(bucket).find((each) => each !== undefined);
    if (missing !== undefined) this.#ledger.broken.push(`the bucket has no place: ${missing}`);
    const cells = new Set(this.#processes.map(({ map }) => JSON.stringify(map.cellOf(bucket))));
    const open = this.#databases.filter(({ now }) => now.buckets.get(bucket)?.state === "open");
    if (cells.size !== 1 || open.length !== 1)
      this.#ledger.broken.push(
        `the bucket ${bucket} is open in ${open.map(({ name }) => name).join()}, by the maps in ${[...cells].join()}`,
      );
  }

  /** Why a bucket is nowhere, by each process. */
  #placesOf(bucket: number): readonly (string | undefined)[] {
    return this.#processes.map(({ map }) => {
      const place = map.cellOf(bucket);
      return "reason" in place ? place.reason : undefined;
    });
  }

  /** The cell of each message knows it, if any has to. */
  #requireKnown(): void {
    for (const [idempotencyKey, { aggregateId }] of this.#ledger.accepted) {
      const place = this.#processes[0]?.map.cellOf(bucketOf(aggregateId ?? idempotencyKey));
      const keeper = this.#databases.find(({ held }) => held.has(idempotencyKey));
      const owner = this.#databases.find(({ name }) => place !== undefined && "cell" in place && name === place.cell);
      const rows = [...(owner?.now.inbox.values() ?? [])];
      if (keeper !== undefined && !rows.some((row) => row.idempotencyKey === idempotencyKey))
        this.#ledger.broken.push(`${owner?.name} has the bucket of ${idempotencyKey}, and not that, as ${keeper.name}`);
    }
  }

  /** Looks at what a call has done, before its change counts. */
  #judge(database: Database, { actor, method, args, result }: Done): void {
    this.trace.note(`  ${actor}: ${method} of ${database.name}`, args, result);
    if (method === "insert") {
      const rows = args[0] as readonly NewInboxRow[];
      const kinds = result as readonly { readonly kind: string }[];
      for (const [n, row] of rows.entries()) {
        if (kinds[n]?.kind === "stored") this.#ledger.stored(row, database.name, this.#databases);
      }
    }
    if (method === "arrive" || method === "open") {
      for (const { bucket } of args[0] as readonly BucketAt[]) {
        const row = database.now.buckets.get(bucket);
        const { buckets } = database.tables.tables;
        if (buckets.get(bucket)?.state !== "open") continue;
        if (method === "open" || this.#hasCopies(database, bucket, row?.otherCell ?? null))
          this.#opened.add(`${actor}: ${bucket}`);
      }
    }
  }

  /** Whether a cell has all messages of a bucket that the one has to know from which it arrives. */
  #hasCopies({ now }: Database, bucket: number, from: string | null): boolean {
    const source = this.#databases.find(({ name }) => name === from);
    const known = new Set([...now.inbox.values()].map(({ idempotencyKey }) => idempotencyKey));
    return [...(source?.now.inbox.values() ?? [])].every(
      (row) =>
        bucketOf(bucketKeyOf(row)) !== bucket || !source?.held.has(row.idempotencyKey) || known.has(row.idempotencyKey),
    );
  }

  async #settle(): Promise<void> {
    for (let turn = 0; turn < TURNS; turn += 1) await new Promise<void>((resolve) => setImmediate(resolve));
  }
}

/** What lets a mover go on. */
const ENDS: ReadonlySet<string> = new Set(["breaks", "breaks done", "is aborted"]);

/** A read of a cell that was away gives it one turn of the event loop. */
const TURNS = 2;

const processName = (n: number): string => `process ${n}`;

const picked = <T>(of: readonly T[], pick: number): T | undefined => of[pick % Math.max(1, of.length)];
