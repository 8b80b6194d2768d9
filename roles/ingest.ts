import { attributePlans } from "../src/core/attributes.ts";
import { ReceiptBatcher } from "../src/core/receiptBatcher.ts";
import { createReceiver } from "../src/core/receive.ts";
import { inboxRoutes } from "../src/http/inboxRoutes.ts";
import type { NewInboxRow } from "../src/model/rows.ts";
import { closer, type RoleContext, type RoleParts } from "./context.ts";

/** Role `ingest`: takes messages in over HTTP and stores them, several in one commit. */
export function ingestRole({ config, store, clock, log, metrics, wakes }: RoleContext): RoleParts {
  const batcher = new ReceiptBatcher(
    {
      async insert(rows) {
        const outcomes = await store.inbox.insert(rows);
        wakes.relay();
        return outcomes;
      },
    },
    log,
  );
  const insert = (row: NewInboxRow) => batcher.add(row);
  const routes = Object.entries(config.sources).flatMap(([source, settings]) => {
    if (settings.kind !== "http") return [];
    const attributes = attributePlans.http(settings);
    const receiver = createReceiver({ source, settings, attributes, insert, clock, metrics });
    const perMinute = settings.rateLimit?.requestsPerMinute;
    const rateLimit = perMinute === undefined ? undefined : { requestsPerMinute: perMinute };
    return [{ settings: { path: settings.path, auth: settings.auth, rateLimit }, receiver }];
  });
  return {
    inbox: inboxRoutes({ inbox: config.inbox, routes, clock, metrics }),
    closers: [closer("receipts", () => batcher.close())],
  };
}
