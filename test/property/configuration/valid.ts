import type { Arbitrary } from "fast-check";
import { trees } from "./trees.ts";

type Block = Readonly<Record<string, unknown>>;

/** Keys that ask for others, which a key chosen by chance seldom meets; the unit tests have them one by one. */
const DEMANDING = new Set([
  "admin.enabled",
  "database.type",
  "database.columnMapping",
  "database.inboxTableName",
  "database.outboxTableName",
  "outbox.capture",
  "inbox.basePath",
  "inbox.pull.basePath",
  "retention.enabled",
  ...["destinations", "sources"].flatMap((section) =>
    ["securityProtocol", "username", "password", "token"].map((key) => `${section}.${key}`),
  ),
]);

/** Configurations, nearly all of them valid. */
export const validTrees: Arbitrary<Block> = trees({
  strayOneIn: 0,
  without: DEMANDING,
  always: new Set(["sources.eventTypePath", "sources.topic"]),
}).map(repaired);

/** Puts right what no key can know by itself: names of other entries, paths that are there once, one test a rule. */
function repaired(tree: Block): Block {
  const destinations = (tree.destinations ?? {}) as Block;
  const [destination] = Object.keys(destinations);
  const routes = (tree.routes ?? []) as readonly Block[];
  const sources = Object.entries((tree.sources ?? {}) as Readonly<Record<string, Block>>);
  return {
    ...tree,
    routes: destination === undefined ? [] : routes.map((route) => ({ ...route, destination })),
    sources: Object.fromEntries(sources.map(([name, source], n) => [name, repairedSource(source, `/path-${n}`)])),
  };
}

function repairedSource(source: Block, path: string): Block {
  const { filter } = source as { readonly filter?: Readonly<Record<string, readonly Block[] | undefined>> };
  const rules = (list: readonly Block[] | undefined) =>
    list?.map(({ header, equals }) => ({ header, equals: equals ?? "a" }));
  return {
    ...source,
    ...("path" in source ? { path } : {}),
    filter: filter && { require: rules(filter.require), exclude: rules(filter.exclude) },
  };
}
