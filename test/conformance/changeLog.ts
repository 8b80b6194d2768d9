import { afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import type { ChangeLog, LogPosition } from "../../src/ports/capture.ts";
import { eventually } from "../support/eventually.ts";
import { within } from "../support/within.ts";

/** A log with an outbox table, for {@link changeLogConformance}. */
export interface ChangeLogHarness {
  readonly changes: ChangeLog;
  /** The same log with a server that nobody can connect to. */
  readonly unreachable: ChangeLog;
  /** The password that both have. */
  readonly secret: string;
  /** A position that this log never gave. */
  readonly foreignPosition: LogPosition;
  /** Commits a row in the outbox. */
  insert(): Promise<void>;
  /** Commits an update and a delete of a row of the outbox. */
  changeOtherwise(): Promise<void>;
  /** Resolves when a follower that has ended holds nothing of the log. */
  released(): Promise<void>;
  close(): Promise<void>;
}

/** What a follower has told, in order. `inserted` with the time of the commit. */
type Told = "following" | { readonly inserted: number } | { readonly reached: LogPosition };

/** What every `ChangeLog` promises. */
export function changeLogConformance(name: string, open: () => Promise<ChangeLogHarness>): void {
  describe(`${name} as a change log`, () => {
    let harness: ChangeLogHarness;
    let followers: { readonly stop: AbortController; readonly ended: Promise<void> }[];

    beforeEach(async () => {
      followers = [];
      harness = await open();
    });
    afterEach(async () => {
      for (const follower of followers) await end(follower);
      await harness.close();
    });

    function follow(from: LogPosition | null = null, log = harness.changes) {
      const told: Told[] = [];
      const stop = new AbortController();
      const events = {
        following: () => void told.push("following"),
        inserted: (at: number) => void told.push({ inserted: at }),
        reached: (position: LogPosition) => void told.push({ reached: position }),
      };
      const ended = log.follow(from, events, stop.signal);
      ended.catch(() => {});
      const follower = { told, stop, ended };
      followers.push(follower);
      return follower;
    }
    async function followed(from: LogPosition | null = null) {
      const follower = follow(from);
      await Promise.race([eventually(() => follower.told.includes("following")), follower.ended]);
      return follower;
    }
    async function end({ stop, ended }: (typeof followers)[number]): Promise<void> {
      stop.abort();
      await within(15_000, "the end of the follower", Promise.allSettled([ended]));
    }
    const inserts = ({ told }: { readonly told: readonly Told[] }) =>
      told.flatMap((each) => (each !== "following" && "inserted" in each ? [each.inserted] : []));
    const lastReached = ({ told }: { readonly told: readonly Told[] }) =>
      told.flatMap((each) => (each !== "following" && "reached" in each ? [each.reached] : [])).at(-1);

    test("tells of its connection first, then of a committed insert with the time of the commit, then how far it came", async () => {
      const follower = await followed();
      expect(follower.told[0]).toBe("following");
      const before = Date.now();
      const had = follower.told.length;
      await harness.insert();
      await eventually(
        () =>
          inserts(follower).length === 1 &&
          follower.told.slice(had).some((each) => each !== "following" && "reached" in each),
      );
      // The clock of a server on this machine, rounded.
      expect(inserts(follower)[0]).toBeGreaterThanOrEqual(before - 1000);
      expect(inserts(follower)[0]).toBeLessThanOrEqual(Date.now() + 1000);
      expect(follower.told.filter((each) => each === "following")).toHaveLength(1);
    });

    test("tells of no other change", async () => {
      await harness.insert();
      const follower = await followed();
      await harness.changeOtherwise();
      // The next insert comes behind those changes.
      await harness.insert();
      await eventually(() => inserts(follower).length > 0);
      await end(follower);
      expect(inserts(follower)).toHaveLength(1);
    });

    test("begins at the present without a saved position", async () => {
      await harness.insert();
      const follower = await followed();
      await harness.insert();
      await eventually(() => inserts(follower).length > 0);
      await end(follower);
      expect(inserts(follower)).toHaveLength(1);
    });

    test("begins at the saved position, and reports later inserts", async () => {
      const first = await followed();
      await harness.insert();
      await eventually(() => inserts(first).length === 1 && lastReached(first) !== undefined);
      await end(first);
      await harness.insert();
      await harness.released();
      const second = await followed(lastReached(first) ?? null);
      // A slot may tell of the first one again, if its follower has ended before it confirmed that.
      await eventually(() => inserts(second).length > 0);
    });

    test("follows also from a position that it does not have", async () => {
      const follower = await followed(harness.foreignPosition);
      await harness.insert();
      await eventually(() => inserts(follower).length > 0);
    });

    test("ends without a failure when its signal aborts, before it begins too, and follows again", async () => {
      await expect(harness.changes.follow(null, silent, AbortSignal.abort())).resolves.toBeUndefined();
      const first = await followed();
      first.stop.abort();
      await expect(within(15_000, "the end", first.ended)).resolves.toBeUndefined();
      await harness.released();
      const second = await followed();
      await harness.insert();
      await eventually(() => inserts(second).length === 1);
      expect(inserts(first)).toEqual([]);
    });

    test("fails if no server answers, and tells no credential", async () => {
      const failure = await within(
        15_000,
        "the failure",
        harness.unreachable.follow(null, silent, new AbortController().signal).then(
          () => undefined,
          (error: unknown) => error,
        ),
      );
      expect(failure).toBeInstanceOf(Error);
      expect((failure as Error).message).not.toContain(harness.secret);
    });
  });
}

const silent = { following: () => {}, inserted: () => {}, reached: () => {} };
