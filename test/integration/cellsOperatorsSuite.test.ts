import { describe } from "@jest/globals";
import type { Store } from "../../src/ports/store.ts";
import type { StoreHarness } from "../conformance/store/harness.ts";
import { exerciseHistory } from "../conformance/store/history.ts";
import { exerciseJobs } from "../conformance/store/jobs.ts";
import { exerciseJournal } from "../conformance/store/journal.ts";
import { exerciseOperations } from "../conformance/store/operations.ts";
import { exerciseParking } from "../conformance/store/parking.ts";
import { exercisePull } from "../conformance/store/pull.ts";
import { exerciseRedirect } from "../conformance/store/redirect.ts";
import { exerciseReplay } from "../conformance/store/replay.ts";
import { composed } from "../support/cells.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { postgresHarnesses } from "../support/postgresHarness.ts";

failOnLeaks();

const open = postgresHarnesses();

/**
 * A database whose operators' parts are those of two cells: its own, and one without rows. What these parts do not have
 * (receipts, claims, heartbeats) goes to the database itself.
 */
async function openCells(): Promise<StoreHarness> {
  const harness = await open();
  const other = await open();
  const store = asCells(harness.store, other.store);
  return {
    ...harness,
    store,
    scope: await store.replay.begin(),
    replica: async (clock) => asCells(await harness.replica(clock), await other.replica(clock)),
    async [Symbol.asyncDispose]() {
      await harness[Symbol.asyncDispose]();
      await other[Symbol.asyncDispose]();
    },
  };
}

function asCells(store: Store, other: Store): Store {
  const { messages, jobs, parked, replay, pull, history, journal, operations } = composed([store, other]);
  return joined(store, {
    ...{ messages, jobs, parked, replay, pull },
    history: joined(store.history, history),
    journal: joined(store.journal, journal),
    operations: joined(store.operations, operations),
  });
}

/** An object, with some of its members replaced. */
function joined<T extends object>(whole: T, parts: Partial<T>): T {
  return new Proxy(whole, {
    get(target, name) {
      const owner = name in parts ? parts : target;
      const member: unknown = Reflect.get(owner, name);
      return typeof member === "function" ? member.bind(owner) : member;
    },
  });
}

describe("two cells as one", () => {
  exerciseHistory(openCells);
  exerciseJournal(openCells);
  exerciseParking(openCells);
  exerciseOperations(openCells);
  exerciseJobs(openCells);
  exerciseReplay(openCells);
  exerciseRedirect(openCells);
  exercisePull(openCells);
});
