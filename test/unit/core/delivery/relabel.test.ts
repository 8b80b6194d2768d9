import { expect, test } from "@jest/globals";
import { Relabel } from "../../../../src/core/delivery/relabel.ts";
import { ManualClock, recordingLog } from "../../../support/recorders.ts";

/** A store whose walk takes two steps; the second finds `found` rows. */
function setup() {
  const clock = new ManualClock();
  const { log, lines } = recordingLog();
  const state = { others: undefined as readonly string[] | undefined, found: 0 };
  const steps: [readonly string[], string | null][] = [];
  const relabel = new Relabel({
    store: {
      async relabel(keep, after) {
        steps.push([keep, after]);
        return after === null ? { next: "there", found: 0 } : { next: null, found: state.found };
      },
    },
    hash: "own",
    others: () => state.others,
    clock,
    log,
  });
  const walk = async (): Promise<number> => {
    const before = steps.length;
    while ((await relabel.pass()) === "again");
    return steps.length - before;
  };
  return { relabel, walk, clock, state, steps, lines };
}

test("walks once at the start, when the first heartbeat has seen the others", async () => {
  const { walk, clock, state, steps } = setup();
  expect(await walk()).toBe(0);
  state.others = ["other"];
  expect(await walk()).toBe(2);
  expect(steps).toEqual([
    [["own", "other"], null],
    [["own", "other"], "there"],
  ]);
  clock.advance(3_600_000);
  expect(await walk()).toBe(0);
});

test("walks without a heartbeat after a minute, as its tables may be missing", async () => {
  const { walk, clock, steps } = setup();
  clock.advance(59_999);
  expect(await walk()).toBe(0);
  clock.advance(1);
  expect(await walk()).toBe(2);
  expect(steps[0]).toEqual([["own"], null]);
});

test("walks again when routes of another process are gone, and not when some come", async () => {
  const { walk, clock, state, steps } = setup();
  state.others = ["old"];
  await walk();
  clock.advance(60_000);
  state.others = ["old", "own", "new"];
  expect(await walk()).toBe(0);
  state.others = ["own", "new"];
  expect(await walk()).toBe(2);
  expect(steps.at(-1)?.[0]).toEqual(["own", "new"]);
});

test("begins the walk anew when routes are gone in the middle of it", async () => {
  const { relabel, walk, state, steps } = setup();
  state.others = ["old"];
  expect(await relabel.pass()).toBe("again");
  state.others = [];
  expect(await walk()).toBe(2);
  expect(steps.slice(1)).toEqual([
    [["own"], null],
    [["own"], "there"],
  ]);
});

test("repeats a walk that found rows, 20 s later, until one finds none", async () => {
  const { walk, clock, state, lines } = setup();
  state.others = [];
  state.found = 3;
  expect(await walk()).toBe(2);
  expect(lines).toMatchObject([{ level: "info", fields: { rows: 3, routes: "own" } }]);
  state.found = 0;
  clock.advance(19_999);
  expect(await walk()).toBe(0);
  clock.advance(1);
  expect(await walk()).toBe(2);
  clock.advance(60_000);
  expect(await walk()).toBe(0);
  expect(lines).toHaveLength(1);
});
