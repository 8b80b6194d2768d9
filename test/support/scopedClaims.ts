import { afterEach, beforeEach, expect } from "@jest/globals";
import type { ClaimRequest, ClaimResult, ClaimScope, Store } from "../../src/ports/store.ts";
import { claimRequest } from "../conformance/store/harness.ts";
import { createDatabase, type TestDatabase } from "./databases.ts";
import { DEFAULT_NAMES, postgresStore } from "./postgresHarness.ts";
import { ManualClock } from "./recorders.ts";

/** What a test of a scope's claims works with. */
export interface ScopedClaims {
  readonly database: TestDatabase;
  readonly clock: ManualClock;
  readonly store: Store;
  claim(request?: Partial<ClaimRequest>): Promise<ClaimResult>;
  /** Claims. @returns the payloads of the claimed rows */
  payloads(request?: Partial<ClaimRequest>): Promise<readonly unknown[]>;
  /** Nothing is free: the claims that follow begin behind everything that is there now. */
  passFront(): Promise<void>;
}

/** A database with a store, made anew before each test of the `describe` block that calls this. @param scope of its claims */
export function scopedClaims(scope: ClaimScope): ScopedClaims {
  let made: Pick<ScopedClaims, "database" | "clock" | "store">;

  beforeEach(async () => {
    const database = await createDatabase();
    const clock = new ManualClock();
    made = { database, clock, store: postgresStore(database, DEFAULT_NAMES, clock) };
    await made.store.schema.migrate();
  });

  afterEach(async () => {
    await made.store.close();
    await made.database.drop();
  });

  const claim: ScopedClaims["claim"] = (request) => made.store.outbox.claim(claimRequest({ scope, ...request }));
  const payloads: ScopedClaims["payloads"] = async (request) =>
    (await claim(request)).rows.map(({ payload }) => payload);
  return {
    get database() {
      return made.database;
    },
    get clock() {
      return made.clock;
    },
    get store() {
      return made.store;
    },
    claim,
    payloads,
    async passFront() {
      for (let pass = 0; pass < 2; pass += 1) {
        made.clock.advance(1001);
        expect(await payloads()).toEqual([]);
      }
    },
  };
}
