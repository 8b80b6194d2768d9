import { expect, test } from "@jest/globals";
import { UnlabelledRows } from "../../../../src/adapters/stores/sql/unlabelledRows.ts";
import { type ClaimQueues, NO_DESTINATION } from "../../../../src/ports/store.ts";
import { ManualClock } from "../../../support/recorders.ts";

const BACKLOG = 10_000;

/** Looks at a backlog whose topics are the names of their destinations. @returns how many rows each look has read */
function lookers(room: Readonly<Record<string, number>>) {
  const clock = new ManualClock(0);
  const reads: number[] = [];
  const rows = new UnlabelledRows(clock, async ({ from, limit }) => {
    const first = Number(from);
    const found = Array.from({ length: Math.min(limit, BACKLOG - first) }, (_, n) => ({
      id: `${first + n}`,
      sequence: `${first + n}`,
      topic: "a",
      is_due: true,
    }));
    reads.push(found.length);
    return found;
  });
  const queues = {
    room: new Map([...Object.entries(room), [NO_DESTINATION, 500] as const]),
    routing: { hash: "", destinationOf: (topic: string) => topic },
  } as unknown as ClaimQueues;
  const look = async (from: number) => {
    clock.advance(1000);
    return (await rows.look(queues, 500, 500, String(from))).labels.length;
  };
  return { look, reads };
}

test("a backlog of the only destination is read once", async () => {
  const { look, reads } = lookers({ a: 500 });
  for (let from = 0; from < 2500; from += 500) expect(await look(from)).toBe(500);
  expect(reads).toEqual([500, 500, 500, 500, 500]);
});

test("no look reads further when the only destination has little room", async () => {
  const { look, reads } = lookers({ a: 100 });
  for (let from = 0; from < 300; from += 100) expect(await look(from)).toBe(100);
  expect(reads).toEqual([500, 500, 500]);
});

test("rows behind a backlog are read for the other destinations that have room", async () => {
  const { look, reads } = lookers({ a: 500, b: 500 });
  await look(0);
  await look(500);
  expect(reads.length).toBeGreaterThan(2);
});

test("a message of a list that both looks find, behind a backlog and in order, is there once", async () => {
  const clock = new ManualClock(0);
  const rows = new UnlabelledRows(clock, async ({ from, limit }) =>
    Array.from({ length: Math.min(limit, 600 - Number(from)) }, (_, n) => {
      const id = `${Number(from) + n}`;
      return { id, sequence: id, topic: id === "550" ? "list" : "a", is_due: true };
    }),
  );
  const queues = {
    room: new Map(["a", "b", NO_DESTINATION].map((each) => [each, 500])),
    routing: {
      hash: "",
      destinationOf: (topic: string) => (topic === "a" ? topic : undefined),
      listOf: (topic: string) => (topic === "list" ? ["a", "b"] : undefined),
    },
  };
  const lists = [];
  for (const from of ["0", "100"]) {
    clock.advance(1000);
    lists.push((await rows.look(queues, 500, 500, from)).lists);
  }
  expect(lists).toEqual([[], [{ id: "550", topic: "list" }]]);
});
