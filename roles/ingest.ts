import { ReceiptBatcher } from "../src/core/receipt/receiptBatcher.ts";
import { createReceiver } from "../src/core/receipt/receive.ts";
import { createSourceStage } from "../src/core/transform/transform.ts";
import { inboxRoutes } from "../src/http/inbox.ts";
import type { NewInboxRow } from "../src/model/rows.ts";
import { closer, type RoleContext, type RoleParts } from "./context.ts";
import { pullParts } from "./pull.ts";
import { attributePlanOf, brokerSources } from "./sources.ts";

/**
 * Role `ingest`: takes messages in over HTTP and from brokers and stores them, several in one commit; pull clients take
 * theirs out here.
 */
export async function ingestRole(context: RoleContext): Promise<RoleParts> {
  const { config, store, clock, log, metrics, evaluator, bodies, wakes } = context;
  const pull = pullParts(context);
  const insertRows = async (rows: readonly NewInboxRow[]) => {
    const outcomes = await store.inbox.insert(rows);
    wakes.relay();
    pull.onStored(rows);
    return outcomes;
  };
  const batcher = new ReceiptBatcher({ insert: insertRows }, log);
  const insert = (row: NewInboxRow) => batcher.add(row);
  const sources = Object.entries(config.sources).flatMap(([source, settings]) => {
    if (settings.kind !== "http") return [];
    const attributes = attributePlanOf(settings);
    const { transform } = settings;
    const stage = transform === undefined ? undefined : createSourceStage(transform, evaluator, metrics, true);
    const receiver = createReceiver({ source, settings, attributes, stage, insert, clock, metrics });
    return [{ settings, receiver }];
  });
  const { workers, health } = await brokerSources(context, insertRows);
  return {
    routes: [...inboxRoutes({ inbox: config.inbox, sources, budget: bodies, clock, metrics }), ...pull.routes],
    waiters: pull.waiters,
    workers,
    health,
    closers: [closer("receipts", () => batcher.close())],
  };
}
