import { readFileSync } from "node:fs";
import { afterAll, describe, expect, test } from "@jest/globals";
import { parseSync, type TsInterfaceDeclaration } from "@swc/core";
import { createPostgresStore } from "../../../../src/adapters/stores/postgres/index.ts";
import { Secret } from "../../../../src/model/secret.ts";
import type { Store } from "../../../../src/ports/store.ts";
import { DEFAULT_NAMES } from "../../../support/postgresHarness.ts";
import { ManualClock, recordingLog } from "../../../support/recorders.ts";
import { unconnectedSqlServerStore } from "../../../support/unconnectedSqlServer.ts";

/** Both databases are first-class: whatever one store has, the other has too, under the same name. Differences are named here. */

const ROOT = new URL("../../../../", import.meta.url);

/** Neither connects before its first statement. */
const STORES = {
  postgres: createPostgresStore(
    {
      endpoints: [],
      primaryOnly: false,
      database: "svc",
      username: "svc",
      password: new Secret("none"),
      applicationName: "svc",
      poolSize: 1,
      connectionTimeoutMs: 1000,
      names: DEFAULT_NAMES,
    },
    new ManualClock(),
    recordingLog().log,
  ),
  sqlserver: unconnectedSqlServerStore(),
};

afterAll(async () => {
  await Promise.all(Object.values(STORES).map((store) => store.close()));
});

/** Facets of a store, and the store itself, with the port that each of them is. */
const FACETS: readonly (readonly [port: string, file: string, of: (store: Store) => object])[] = [
  ["InboxStore", "store.ts", (store) => store.inbox],
  ["OutboxStore", "store.ts", (store) => store.outbox],
  ["SchemaStore", "store.ts", (store) => store.schema],
  ["JournalStore", "journalStore.ts", (store) => store.journal],
  ["PullStore", "pullStore.ts", (store) => store.pull],
  ["DestinationStore", "destinationStore.ts", (store) => store.destinations],
  ["ParkedStore", "store.ts", (store) => store.parked],
  ["ReplayStore", "finishedRows.ts", (store) => store.replay],
  ["RetentionStore", "finishedRows.ts", (store) => store.retention],
  ["Store", "store.ts", (store) => store],
];

describe.each(FACETS)("%s", (port, file, of) => {
  const methods = methodsOf(file, port);

  test.each(Object.keys(STORES) as (keyof typeof STORES)[])(
    "%s has every method, with the port's parameters",
    (name) => {
      const facet = of(STORES[name]) as Record<string, unknown>;
      const found = [...methods.keys()].map((method) => {
        const implementation = facet[method];
        if (typeof implementation !== "function") return [method, undefined];
        return [method, implementation.length];
      });
      expect(found).toEqual([...methods]);
    },
  );

  test("neither store has a public method that the other has not", () => {
    expect(publicMethods(of(STORES.sqlserver))).toEqual(publicMethods(of(STORES.postgres)));
  });
});

/** Each method of an interface of `src/ports` with the number of its parameters. */
function methodsOf(file: string, port: string): ReadonlyMap<string, number> {
  const { body } = parseSync(readFileSync(new URL(`src/ports/${file}`, ROOT), "utf8"), { syntax: "typescript" });
  const declaration = body
    .flatMap((item) => (item.type === "ExportDeclaration" ? [item.declaration] : []))
    .find((item): item is TsInterfaceDeclaration => item.type === "TsInterfaceDeclaration" && item.id.value === port);
  const members = declaration?.body.body ?? [];
  const methods = members.flatMap((member) =>
    member.type === "TsMethodSignature" && member.key.type === "Identifier"
      ? [[member.key.value, member.params.length] as const]
      : [],
  );
  if (methods.length === 0) throw new Error(`src/ports/${file} has no interface ${port} with methods`);
  return new Map(methods);
}

function publicMethods(facet: object): string[] {
  const names = new Set<string>();
  for (
    let object: object | null = facet;
    object !== Object.prototype && object !== null;
    object = Object.getPrototypeOf(object)
  ) {
    for (const name of Object.getOwnPropertyNames(object)) {
      if (name !== "constructor" && typeof Reflect.get(facet, name) === "function") names.add(name);
    }
  }
  return [...names].sort();
}
