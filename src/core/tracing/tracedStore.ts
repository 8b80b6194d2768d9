import { StoreError } from "../../model/errors.ts";
import type { MessageId, NewInboxRow } from "../../model/rows.ts";
import {
  countAttributes,
  pullAttributes,
  SPANS,
  type SpanAttributes,
  type StatementNames,
  statementAttributes,
} from "../../model/spans.ts";
import { asRelayed, isSampled, storedContext, type TraceContext } from "../../model/traceContext.ts";
import type { Changed } from "../../ports/finishedRows.ts";
import type { Store } from "../../ports/store.ts";
import type { SpanOptions, Tracer } from "../../ports/tracer.ts";
import type { Clock } from "../../time/clock.ts";

type Contexts = readonly (TraceContext | undefined)[];

/**
 * A store with spans around the statements that move messages. The span of a statement belongs to the trace of its first
 * message that is sampled, and has a link to each of those; without one there is no span.
 */
export function tracedStore(store: Store, tracer: Tracer, names: StatementNames, clock: Pick<Clock, "now">): Store {
  /** @param contexts of the messages, which nothing waits for */
  async function statement<T>(
    name: string,
    kind: SpanOptions["kind"],
    attributes: (count: number) => SpanAttributes,
    run: () => Promise<T>,
    contexts: (result: T | undefined) => Contexts | Promise<Contexts>,
  ): Promise<T> {
    const startedAt = clock.now();
    const end = async (result: T | undefined, error?: string): Promise<void> => {
      const at = clock.now();
      const all = await contexts(result);
      const links = all.filter((context) => context !== undefined && isSampled(context)) as readonly TraceContext[];
      const [parent] = links;
      if (parent === undefined) return;
      tracer.begin(name, { kind, parent, links, startedAt, attributes: attributes(all.length) }).end({ error, at });
    };
    try {
      const result = await run();
      void end(result);
      return result;
    } catch (error) {
      void end(undefined, error instanceof StoreError ? error.code : "unexpected");
      throw error;
    }
  }
  const ofKnown = <T>(
    name: string,
    operation: string,
    table: string,
    known: Contexts,
    run: () => Promise<T>,
  ): Promise<T> =>
    statement(
      name,
      "client",
      () => statementAttributes(names, operation, table, known.length),
      run,
      () => known,
    );
  const stored = <T>(rows: readonly NewInboxRow[], run: () => Promise<T>): Promise<T> =>
    ofKnown(
      SPANS.store,
      "INSERT",
      names.inbox,
      rows.map(({ headers }) => storedContext(headers)),
      run,
    );
  const replayed = (ids: readonly MessageId[], run: () => Promise<Changed>): Promise<Changed> =>
    statement(
      SPANS.replay,
      "internal",
      () => countAttributes(ids.length),
      run,
      (result) => (result === undefined || result.changed === 0 ? [] : contextsOf(ids)),
    );
  /** Of the first messages. A read that fails costs the span alone. */
  const contextsOf = async (ids: readonly MessageId[]): Promise<Contexts> => {
    const read = ids.slice(0, MOST_READ).map(async (id) => {
      const { outbox, inbox } = await store.messages.get(id, false);
      const headers = outbox?.headers ?? inbox?.headers;
      return headers && storedContext(headers);
    });
    return await Promise.all(read).catch(() => []);
  };

  // The check of the columns makes the parts of a store anew.
  const decorated = new WeakMap<object, unknown>();
  const around = <T extends object>(part: T, members: (part: T) => Partial<T>): T => {
    const known = decorated.get(part) as T | undefined;
    const own = known ?? overlaid(part, members(part));
    if (known === undefined) decorated.set(part, own);
    return own;
  };
  return overlaid(store, {
    get inbox() {
      return around(store.inbox, (inbox) => ({
        insert: (rows) => stored(rows, () => inbox.insert(rows)),
        insertAllOrNone: (rows) => stored(rows, () => inbox.insertAllOrNone(rows)),
        get insertRelayed(): Store["inbox"]["insertRelayed"] {
          const { insertRelayed } = inbox;
          return insertRelayed && ((rows, ...others) => stored(rows, () => insertRelayed(rows, ...others)));
        },
        relay: (request) =>
          statement(
            SPANS.relay,
            "internal",
            (count) => statementAttributes(names, "INSERT", names.outbox, count),
            () => inbox.relay(request),
            (result) => (result?.traces ?? []).map((traceparent) => ({ traceparent })),
          ),
      }));
    },
    get outbox() {
      return around(store.outbox, (outbox) => ({
        settle(outcomes) {
          const known = outcomes.map(({ trace }) => (trace === undefined ? undefined : { traceparent: trace }));
          return ofKnown(SPANS.settle, "UPDATE", names.outbox, known, () => outbox.settle(outcomes));
        },
      }));
    },
    get pull() {
      return around(store.pull, (pull) => ({
        async claim(request) {
          const result = await statement(
            SPANS.claimed(request.source),
            "consumer",
            (count) => ({ ...pullAttributes("receive", "claim", request.source), ...countAttributes(count) }),
            () => pull.claim(request),
            (result) => (result?.rows ?? []).map(({ headers }) => storedContext(headers)),
          );
          return { ...result, rows: result.rows.map((row) => ({ ...row, headers: asRelayed(row.headers) })) };
        },
        acknowledge: (claim) =>
          statement(
            SPANS.acknowledged(claim.source),
            "client",
            () => pullAttributes("settle", "ack", claim.source),
            () => pull.acknowledge(claim),
            (ids = []) => contextsOf(ids),
          ),
        reject: (claim, options) =>
          statement(
            SPANS.rejected(claim.source),
            "client",
            () => pullAttributes("settle", "nack", claim.source),
            () => pull.reject(claim, options),
            (result) => (result === undefined ? [] : contextsOf([...result.retried, ...result.dead])),
          ),
      }));
    },
    get replay() {
      return around(store.replay, (replay) => ({
        move: (scope, ids, ...others) => replayed(ids, () => replay.move(scope, ids, ...others)),
        add: (ids, to) => replayed(ids, () => replay.add(ids, to)),
      }));
    },
  });
}

/** Most messages that are read for the links of a span. */
const MOST_READ = 4;

/** The object with other members in the place of its own. */
function overlaid<T extends object>(target: T, members: Partial<T>): T {
  return new Proxy(target, {
    get(_, name) {
      if (Object.hasOwn(members, name)) return Reflect.get(members, name);
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}
