import { v4 as uuidv4 } from "uuid";
import { sourceKindOf } from "../src/adapters/kinds.ts";
import { Pull, pullSourcesOf } from "../src/core/delivery/pull.ts";
import { createIntake } from "../src/core/receipt/intake.ts";
import { type Journal, ReceiptJournal } from "../src/core/receipt/journal.ts";
import { cellJournal, cellReceipts, ReceiptBatcher, storeReceived } from "../src/core/receipt/receiptBatcher.ts";
import { createReceiver, type Receipts } from "../src/core/receipt/receive.ts";
import { countRefusals } from "../src/core/receipt/refusals.ts";
import { inboxRoutes } from "../src/http/inbox.ts";
import { pullRoutes } from "../src/http/pull/routes.ts";
import { PullWaiters } from "../src/http/pull/waiters.ts";
import type { HttpRoute } from "../src/http/routes.ts";
import {
  type CellInsertResult,
  type ClaimToken,
  type InsertResult,
  type NewInboxRow,
  operationsTables,
} from "../src/model/rows.ts";
import type { HealthComponent, Service } from "../src/ports/runtime.ts";
import type { Source } from "../src/ports/source.ts";
import type { InboxStore } from "../src/ports/store.ts";
import { REPLICA } from "../src/runtime/log.ts";
import { sourceOptions } from "../src/setup/sources.ts";
import { tracedSource } from "../src/setup/tracing.ts";
import { sleep } from "../src/time/wait.ts";
import { type Cells, closer, type OperatorContext, type RoleContext, type RoleParts } from "./context.ts";

/** Role `ingest`: receives messages over HTTP and from brokers and stores them; serves pull clients. */
export async function ingestRole(context: OperatorContext, into: RoleContext | Cells): Promise<RoleParts> {
  const { config, clock, metrics, bodies } = context;
  const pull = pullParts(context);
  const path = "store" in into ? ingestPath(into, pull.onStored) : ingestPaths(into, pull.onStored);
  const sources = Object.entries(config.sources).flatMap(([source, settings]) => {
    if (settings.kind !== "http") return [];
    const options = sourceOptions(context, source, settings, path.journal);
    const { receipts: batcher } = path;
    const receiver = context.tracing.receiver(
      createReceiver({ ...options, batcher, requestTimeoutMs: config.server.requestTimeoutMs }),
      tracedSource(source, settings),
    );
    return [{ settings, receiver, onAnswer: countRefusals(options) }];
  });
  const { workers, health } = await brokerSources(context, path.insert, path.journal);
  return {
    routes: [...inboxRoutes({ inbox: config.inbox, sources, budget: bodies, clock, metrics }), ...pull.routes],
    waiters: pull.waiters,
    workers,
    health,
    closers: path.closers,
  };
}

/** The store of received messages. */
interface IngestPath {
  /** Several receipts in one commit. */
  readonly receipts: Receipts;
  /** The messages of a broker, in one commit in each cell. */
  readonly insert: (rows: readonly NewInboxRow[]) => Promise<readonly CellInsertResult[]>;
  readonly journal: Journal | undefined;
  readonly closers: readonly Service[];
}

type OnStored = (rows: readonly NewInboxRow[]) => void;

function ingestPath(context: RoleContext, onPullable: OnStored) {
  const { store, log, metrics, wakes, receipts } = context;
  const onStored = (rows: readonly NewInboxRow[], outcomes: readonly InsertResult[]): void => {
    const relayed = outcomes.flatMap((outcome) =>
      outcome.kind === "stored" && outcome.relayed ? [outcome.relayed] : [],
    );
    if (relayed.length > 0) metrics.inboxMessages("forwarded", relayed.length);
    const expanded = outcomes.filter((outcome) => outcome.kind === "stored" && outcome.isExpanded === true);
    if (expanded.length > 0) metrics.messagesExpanded(expanded.length);
    if (relayed.includes("pending")) wakes.wake("poller");
    if (relayed.length < rows.length) wakes.wake("relay");
    onPullable(rows);
  };
  const inbox: Pick<InboxStore, "insert" | "insertAllOrNone"> = {
    insert: (rows) => storeReceived(store.inbox, receipts, rows),
    insertAllOrNone: (rows) => store.inbox.insertAllOrNone(rows),
  };
  const insert: InboxStore["insert"] = async (rows) => {
    const outcomes = await inbox.insert(rows);
    onStored(rows, outcomes);
    return outcomes;
  };
  const batcher = new ReceiptBatcher(inbox, log, onStored);
  const journal = journalOf(context);
  const closers = [closer("receipts", () => batcher.close()), ...(journal === undefined ? [] : [journal])];
  return { receipts: batcher, insert, journal, closers } satisfies IngestPath;
}

function ingestPaths(cells: Cells, onPullable: OnStored): IngestPath {
  const paths = cells.map(({ context }) => ingestPath(context, onPullable));
  const receipts = cellReceipts(paths.map((path, n) => ({ ...path, isOpen: () => cells[n]?.isOpen === true })));
  return {
    receipts,
    insert: receipts.insert,
    journal: cellJournal(paths.map(({ journal }) => journal)),
    closers: paths.flatMap(({ closers }) => closers),
  };
}

/** Undefined with `outbox.history: off`. */
function journalOf({ config, store, clock, metrics, log }: RoleContext): ReceiptJournal | undefined {
  if (config.outbox.history === "off") return undefined;
  const { target, operationsTablePrefix } = config.database;
  const table = operationsTables(operationsTablePrefix).journal;
  const remedy =
    `svc migrate, or the statements of migrations/${target.type}/011.do.journal.sql with the name ${table}; ` +
    "GRANT SELECT, INSERT and DELETE on it";
  return new ReceiptJournal({ store: store.journal, replica: REPLICA, remedy, clock, metrics, log });
}

interface PullParts {
  readonly routes: readonly HttpRoute[];
  readonly waiters: readonly Service[];
  /** Wakes the clients that wait for these rows. */
  readonly onStored: (rows: readonly NewInboxRow[]) => void;
}

/** Empty when `inbox.pull.enabled` is off. */
function pullParts({ config, store, clock, log, metrics, redact, bodies }: OperatorContext): PullParts {
  const { pull: settings, maxBodyBytes } = config.inbox;
  if (!settings.enabled) return { routes: [], waiters: [], onStored: () => {} };
  const sources = pullSourcesOf(config.sources);
  const pull = new Pull({
    store: store.pull,
    maxAttempts: settings.maxAttempts,
    newToken: () => uuidv4() as ClaimToken,
    redact,
    metrics,
    clock,
    log,
  });
  const waiters = new PullWaiters({ sources, pull });
  return {
    routes: pullRoutes({
      settings,
      limits: { maxBytes: maxBodyBytes, budget: bodies },
      sources,
      pull,
      waiters,
      clock,
      log,
    }),
    waiters: [waiters],
    onStored(rows) {
      const pulled = rows.filter((row) => row.consumption === "pull").map((row) => row.source);
      for (const source of new Set(pulled)) waiters.wake(source);
    },
  };
}

/** The configured broker sources with their health components. Loads only the libraries of their kinds. */
export async function brokerSources(
  context: OperatorContext,
  insert: IngestPath["insert"],
  journal?: Journal,
): Promise<{ readonly workers: readonly Source[]; readonly health: readonly HealthComponent[] }> {
  const { clock, log, redact, tracing } = context;
  const random = Math.random;
  const workers: Source[] = [];
  const health: HealthComponent[] = [];
  for (const [name, config] of Object.entries(context.config.sources)) {
    if (config.kind === "http") continue;
    const options = sourceOptions(context, name, config, journal);
    const intake = tracing.intake(
      createIntake({ ...options, insert, wait: sleep, redact, random }),
      tracedSource(name, config),
    );
    const tools = { name, intake, log: log.child({ source: name }), clock, random };
    const source = await sourceKindOf(config).create(config, tools);
    workers.push(source);
    health.push({ name: `${config.kind}.${name}`, decidesReadiness: config.required, check: () => source.check() });
  }
  return { workers, health };
}
