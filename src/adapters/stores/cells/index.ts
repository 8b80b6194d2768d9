import { randomUUID } from "node:crypto";
import { cellSequence, DONE, positionsText, readPositions, splitSequence } from "../../../model/cellPositions.ts";
import { CellError, ConfigError, cellNames, configErrorOf, StoreError } from "../../../model/errors.ts";
import type { ClaimToken, MessageId } from "../../../model/rows.ts";
import type { FinishedRow, ReplayScope, ReplayStore } from "../../../ports/finishedRows.ts";
import type { FoundMessage, MessagePage, MessageStore, StoredMessage } from "../../../ports/messageStore.ts";
import type { BlockedKey } from "../../../ports/operationsStore.ts";
import type { Cells, OperatorStore } from "../../../ports/operatorStore.ts";
import type { PullClaim, PullStore } from "../../../ports/pullStore.ts";
import type { Log } from "../../../ports/runtime.ts";
import type { CheckedTables, ParkedRow, ParkedStore, Store } from "../../../ports/store.ts";
import type { Clock } from "../../../time/clock.ts";
import { atMost, linked } from "../../../time/wait.ts";
import { askEach, type Cell, CellLink, changeRows, type Failure, failed, readAll, readLists } from "./link.ts";

/**
 * The cells of an installation as one store. What exists once is in the control store: without it these calls fail, the
 * others succeed. `waitUntilReady` waits for the first cell that answers, and a moment for the others.
 *
 * @param all one at least, in the order of the configuration
 * @param control the store of `database.url`, which may be that of a cell
 */
export function severalCells(
  all: readonly Cell[],
  control: Store,
  clock: Clock,
  log: Log,
): OperatorStore & { readonly cells: Cells } {
  const cells = all.map((cell, place) => new CellLink(cell, place, clock, log));
  const own = cells.find(({ store }) => store === control);
  const shared = own ?? new CellLink({ name: "control", store: control }, -1, clock, log);
  const links = own === undefined ? [shared, ...cells] : cells;
  /** Nobody knows what a control store has that was away when the tables were checked: it is asked. */
  let isChecked = true;
  return {
    messages: cellMessages(cells),
    operations: cellOperations(cells, shared),
    parked: cellParked(cells),
    replay: cellReplay(cells),
    journal: cellJournal(cells),
    pull: cellPull(cells),
    outbox: cellBacklog(cells),

    destinations: {
      get isAvailable() {
        return !isChecked || control.destinations.isAvailable;
      },
      states: () => shared.ask(({ destinations }) => destinations.states()),
      pause: (name, pause) => shared.ask(({ destinations }) => destinations.pause(name, pause)),
      resume: (name) => shared.ask(({ destinations }) => destinations.resume(name)),
    },

    history: {
      async of(id, limit) {
        const { answers } = await readAll(cells, ({ history }) => history.of(id, limit));
        return answers.flatMap(({ cell, value }) => value.map((entry) => ({ ...entry, cell: cell.name })));
      },
    },
    histories: cells.map((cell) => ({
      async since(after, limit) {
        const entries = await cell.ask(({ history }) => history.since(after, limit));
        return entries.map((entry) => ({ ...entry, cell: cell.name }));
      },
    })),

    schema: {
      async migrate() {
        const { answers, failures } = await askEach(links, ({ schema }) => schema.migrate());
        const applied = answers.flatMap(({ cell, value }) => value.map((file) => `${cell.name}: ${file}`));
        if (failures.length === 0) return applied;
        throw failed(failures, `the others are up to date, applied: ${applied.join(", ") || "nothing"}`);
      },

      async checkColumns(tables = ALL_TABLES, needs) {
        const problems: ConfigError["problems"][number][] = [];
        const { failures } = await readAll(links, async ({ schema }, cell) => {
          const has = (table: CheckedTables[number]) => (table === "destinations" ? cell === shared : cell.place >= 0);
          try {
            await schema.checkColumns(tables.filter(has), needs);
          } catch (error) {
            if (!(error instanceof ConfigError)) throw error;
            problems.push(...configErrorOf(cell.name, error).problems);
          }
        });
        isChecked = !failures.some(({ cell }) => cell === shared);
        if (problems.length > 0) throw new ConfigError(problems);
      },
    },

    cells: {
      names: cells.map(({ name }) => name),
      watch() {
        const missingOf = links.map((link) => link.watch());
        return () => missingOf.flatMap((missing) => missing() ?? []);
      },
    },

    announceOutbox() {
      for (const { store } of cells) store.announceOutbox();
    },

    async waitUntilReady(timeoutMs, signal) {
      using waiting = linked(signal);
      const waits = links.map(({ store }) => store.waitUntilReady(timeoutMs, waiting.signal));
      const settled = Promise.allSettled(waits);
      await Promise.any(waits).catch((error: AggregateError) => {
        throw error.errors[0];
      });
      await atMost(LATE_CELL_MS, settled);
      waiting.abort();
    },

    async close() {
      await Promise.all(links.map(({ store }) => store.close()));
    },
  };
}

const ALL_TABLES: CheckedTables = ["inbox", "outbox", "destinations", "history"];
const LATE_CELL_MS = 2000;

function cellMessages(cells: readonly CellLink[]): MessageStore {
  const first = async <T>(read: (messages: MessageStore) => Promise<T | undefined>): Promise<T | undefined> => {
    const { answers } = await readAll(cells, ({ messages }) => read(messages));
    return answers.find(({ value }) => value !== undefined)?.value;
  };
  return {
    async get(id, withPayload) {
      const { answers, failures } = await readAll(cells, ({ messages }) => messages.get(id, withPayload));
      const own = answers.find(({ value }) => (value.outbox ?? value.inbox) !== undefined);
      if (own !== undefined) return { ...own.value, cell: own.cell.name };
      if (failures.length > 0) throw failed(failures, `the others have no message ${id}`);
      return answers[0]?.value as StoredMessage;
    },

    async byIdempotencyKey(sources, key) {
      const { answers } = await readAll(cells, ({ messages }) => messages.byIdempotencyKey(sources, key));
      return answers.flatMap(({ value }) => value);
    },

    rowBefore: (id, destination) => first((messages) => messages.rowBefore(id, destination)),
    lockHolder: (id) => first((messages) => messages.lockHolder(id)),
    outboxPage: (search, before, limit) =>
      page(cells, before, limit, ({ messages }, place) => messages.outboxPage(search, place, limit)),
    inboxPage: (search, before, limit) =>
      page(cells, before, limit, ({ messages }, place) => messages.inboxPage(search, place, limit)),
  };
}

async function page(
  cells: readonly CellLink[],
  before: string | null,
  limit: number,
  read: (store: Store, place: string | null) => Promise<MessagePage>,
): Promise<MessagePage> {
  // A position in one database means nothing here: the list begins again.
  const begin = (before === null ? undefined : readPositions(before)) ?? cells.map(() => null);
  const open = cells.filter(({ place }) => begin[place] !== DONE);
  const { answers } = await readAll(open, (store, { place }) => read(store, begin[place] ?? null));
  return mergePages(
    answers.map(({ cell, value }) => ({ cell, ...value })),
    begin,
    limit,
  );
}

interface Part extends MessagePage {
  readonly cell: Pick<CellLink, "name" | "place">;
}

/**
 * Merges a page of each cell into one, newest first; each cell keeps its own order. Every row comes exactly once, but
 * in a search with few matches a later page may have newer rows of one cell.
 *
 * @param begin the position at which each cell began
 */
export function mergePages(parts: readonly Part[], begin: readonly (string | null)[], limit: number): MessagePage {
  const left = parts.map((part) => ({ ...part, rows: part.rows.toReversed() }));
  const places = [...begin];
  const rows: FoundMessage[] = [];
  while (rows.length < limit) {
    const [part] = left.toSorted((a, b) => timeOf(b.rows.at(-1)) - timeOf(a.rows.at(-1)));
    const row = part?.rows.pop();
    if (part === undefined || row === undefined) break;
    places[part.cell.place] = row.position;
    rows.push({ ...row, cell: part.cell.name, position: positionsText(places) });
  }
  for (const part of left) if (part.rows.length === 0) places[part.cell.place] = part.next ?? DONE;
  const isEnd = left.every(({ rows, next }) => rows.length === 0 && next === null);
  return { rows, next: isEnd ? null : positionsText(places) };
}

/** A row without a time goes with the one before it. @param row undefined at the end of a part */
function timeOf(row: FoundMessage | undefined): number {
  return row === undefined ? NOTHING_LEFT : (row.createdAt?.getTime() ?? Number.MAX_VALUE);
}

const NOTHING_LEFT = -Number.MAX_VALUE;

/** Processes, figures and the audit log are in the control store. */
function cellOperations(cells: readonly CellLink[], control: CellLink): OperatorStore["operations"] {
  return {
    processes: () => control.ask(({ operations }) => operations.processes()),
    figures: (minutes) => control.ask(({ operations }) => operations.figures(minutes)),
    addAudit: (entry) => control.ask(({ operations }) => operations.addAudit(entry)),
    audit: (before, limit) => control.ask(({ operations }) => operations.audit(before, limit)),

    async deadRows(limit) {
      const rows = await readLists(cells, ({ operations }) => operations.deadRows(limit));
      return rows.toSorted(newestFirst(({ diedAt }) => diedAt)).slice(0, limit);
    },

    async blockedKeys(limit, behindLimit) {
      const keys = await readLists(cells, ({ operations }) => operations.blockedKeys(limit, behindLimit));
      return keys.toSorted(nextDueFirst).slice(0, limit);
    },

    async inboxBacklog(pullSources, limit) {
      const { answers } = await readAll(cells, ({ operations }) => operations.inboxBacklog(pullSources, limit));
      const bySource = answers.flatMap(({ value }) => value.map((each) => [each.source, each] as const));
      return [...addedByName(bySource).values()];
    },
  };
}

function cellBacklog(cells: readonly CellLink[]): OperatorStore["outbox"] {
  return {
    async backlog(request) {
      const { answers } = await readAll(cells, ({ outbox }) => outbox.backlog(request));
      const backlogs = answers.map(({ value }) => value);
      const byDestination = addedByName(backlogs.flatMap((each) => [...each.byDestination]));
      return { ...backlogs.reduce(added), byDestination };
    },
  };
}

/** A duplicate is noted in the cell of its message. */
function cellJournal(cells: readonly CellLink[]): OperatorStore["journal"] {
  return {
    async duplicatesOf(id, limit) {
      const { answers } = await readAll(cells, ({ journal }) => journal.duplicatesOf(id, limit));
      const own = answers.find(({ value }) => value.count > 0);
      const entries = own?.value.entries.map((entry) => ({ ...entry, cell: own.cell.name }));
      return { entries: entries ?? [], count: own?.value.count ?? 0 };
    },

    async find(search, limit) {
      const entries = await readLists(cells, ({ journal }) => journal.find(search, limit));
      return entries.toSorted(newestFirst(({ at }) => at)).slice(0, limit);
    },
  };
}

/** Those without a time last. */
function newestFirst<T>(timeOf: (row: T) => Date | null): (a: T, b: T) => number {
  return (a, b) => Number(timeOf(b)) - Number(timeOf(a));
}

/** A parked row has no due time, and comes last. */
function nextDueFirst(a: BlockedKey, b: BlockedKey): number {
  const at = ({ dueAt }: BlockedKey) => dueAt?.getTime() ?? Number.MAX_SAFE_INTEGER;
  return at(a) - at(b);
}

function addedByName<T extends object>(named: readonly (readonly [string, T])[]): ReadonlyMap<string, T> {
  const sums = new Map<string, T>();
  for (const [name, each] of named) {
    const sum = sums.get(name);
    sums.set(name, sum === undefined ? each : added(sum, each));
  }
  return sums;
}

/** Adds what two cells counted; of ages, the greater one counts. Null for nothing. */
function added<T extends object>(a: T, b: T): T {
  const others = new Map<string, unknown>(Object.entries(b));
  const sums = Object.entries(a).map(([name, value]) => {
    const other = others.get(name);
    if (typeof value !== "number" || typeof other !== "number") return [name, value ?? other];
    return [name, name.endsWith("AgeMs") ? Math.max(value, other) : value + other];
  });
  return Object.fromEntries(sums) as T;
}

function cellParked(cells: readonly CellLink[]): ParkedStore {
  return {
    async list(filter, after, limit) {
      const from = splitSequence(after ?? FIRST);
      const { answers } = await readAll(cells.slice(from.place), ({ parked }, { place }) =>
        parked.list(filter, place === from.place ? from.sequence : null, limit),
      );
      return answers.flatMap(({ cell, value }) => value.map((row) => ofCell(row, cell))).slice(0, limit);
    },

    retry: (ids, by) => changeRows(cells, ids, ({ parked }) => parked.retry(ids, by)),
    discard: (ids, by, reason) => changeRows(cells, ids, ({ parked }) => parked.discard(ids, by, reason)),
  };
}

const FIRST = "0";

function ofCell<R extends ParkedRow | FinishedRow>(row: R, { name, place }: CellLink): R {
  return { ...row, cell: name, sequence: cellSequence(place, row.sequence) };
}

/**
 * Replays cell by cell. A scope covers the cells that answered when it began; its end fails with the names of the
 * others.
 */
function cellReplay(cells: readonly CellLink[]): ReplayStore {
  /** @returns of each cell its part, null if it did not answer when the replay began */
  const partsOf = ({ lastSequence }: ReplayScope) => JSON.parse(lastSequence) as readonly (ReplayScope | null)[];
  const notBegun = (parts: readonly (ReplayScope | null)[]) => {
    const names = cells.flatMap(({ name, place }) => (parts[place] ? [] : [name]));
    const away = `${cellNames(names)} did not answer when the replay began`;
    return new CellError("other", names, `${away}; the rows there were not moved: start another replay for them`);
  };
  return {
    get destinationRemedy() {
      return cells.map(({ store }) => store.replay.destinationRemedy).find((remedy) => remedy !== undefined);
    },

    async begin() {
      const { answers } = await readAll(cells, ({ replay }) => replay.begin());
      const parts = cells.map((each) => answers.find(({ cell }) => cell === each)?.value ?? null);
      const [finishedUntil = ""] = answers
        .map(({ value }) => value.finishedUntil)
        .toSorted()
        .reverse();
      return { finishedUntil, lastSequence: JSON.stringify(parts) };
    },

    async page(scope, filter, after, limit) {
      const parts = partsOf(scope);
      const from = splitSequence(after ?? FIRST);
      const cell = cells.find(({ place }) => place >= from.place && parts[place]);
      const own = cell && parts[cell.place];
      if (!own) throw notBegun(parts);
      const begin = cell.place === from.place ? from.sequence : FIRST;
      const { rows, next } = await cell.ask(({ replay }) => replay.page(own, filter, begin, limit));
      const isLast = cell.place === cells.length - 1 && !parts.includes(null);
      const nextCell = isLast ? null : cellSequence(cell.place + 1, FIRST);
      return {
        rows: rows.map((row) => ofCell(row, cell)),
        next: next === null ? nextCell : cellSequence(cell.place, next),
      };
    },

    async find(scope, filter, ids) {
      const parts = partsOf(scope);
      const answers = await Promise.all(
        cells.map(async (cell) => {
          const own = parts[cell.place];
          return own
            ? (await cell.ask(({ replay }) => replay.find(own, filter, ids))).map((row) => ofCell(row, cell))
            : [];
        }),
      );
      const rows = answers.flat();
      // A message is found as its deliveries: whether these are all of it, its cell alone knows.
      const found = new Set(rows.map(({ id }) => id));
      if (parts.includes(null) && !ids.every((id) => found.has(id))) throw notBegun(parts);
      return rows;
    },

    move(scope, ids, by, to) {
      const parts = partsOf(scope);
      return changeRows(cells, ids, async ({ replay }, { place }) => {
        const own = parts[place];
        return own ? await replay.move(own, ids, by, to) : { changed: 0 };
      });
    },

    add: (ids, to) => changeRows(cells, ids, ({ replay }) => replay.add(ids, to)),

    async untried(ids) {
      // It sets the pace alone: rows of a cell that is away wait for nobody.
      const { answers } = await askEach(cells, ({ replay }) => replay.untried(ids));
      return answers.reduce((sum, { value }) => sum + value, 0);
    },

    async receiveAgain(row) {
      const cell = cells.find(({ name }) => name === row.cell);
      return (await cell?.ask(({ replay }) => replay.receiveAgain(row))) ?? false;
    },
  };
}

/** Claims from one cell, starting with another each time. A claim that answers too late returns with its lease. */
function cellPull(cells: readonly CellLink[]): PullStore {
  let first = 0;
  /** Works on the rows of a claim in its cell. */
  const inCell = async <T>({ token }: PullClaim, work: (pull: PullStore) => Promise<T>, nothing: T): Promise<T> =>
    (await cells[placeOf(token)]?.ask(({ pull }) => work(pull))) ?? nothing;
  return {
    async claim(request) {
      const inTurn = [...cells.slice(first), ...cells.slice(0, first)];
      first = (first + 1) % cells.length;
      const dead: MessageId[] = [];
      const failures: Failure[] = [];
      for (const cell of inTurn) {
        try {
          const claimed = await cell.ask(({ pull }) => pull.claim({ ...request, token: tokenOf(cell.place) }));
          dead.push(...claimed.dead);
          if (claimed.rows.length > 0) return { ...claimed, dead };
        } catch (error) {
          if (!(error instanceof StoreError)) throw error;
          failures.push({ cell, error });
        }
      }
      if (failures.length === cells.length) throw failed(failures);
      return { token: request.token, rows: [], dead };
    },

    acknowledge: (claim) => inCell(claim, (pull) => pull.acknowledge(claim), []),
    extend: (claim, leaseMs) => inCell(claim, (pull) => pull.extend(claim, leaseMs), []),
    reject: (claim, options) =>
      inCell(claim, (pull) => pull.reject(claim, options), { retried: [], dead: [], released: [] }),
  };
}

/** A UUID of version 8 (RFC 9562) whose first 16 bits are the place of the cell: any process finds the cell by it. */
function tokenOf(place: number): ClaimToken {
  const random = randomUUID();
  return `${place.toString(16).padStart(4, "0")}${random.slice(4, 14)}8${random.slice(15)}` as ClaimToken;
}

/** @returns the place in a token; a token from elsewhere may name a cell that does not exist */
function placeOf(token: ClaimToken): number {
  return Number.parseInt(token.slice(0, 4), 16);
}
