import { describe, expect, test } from "@jest/globals";
import fc from "fast-check";
import { type Linked, LinkedList } from "../../../src/model/collections.ts";

interface Member extends Linked {
  readonly name: number;
}

describe("a linked list", () => {
  test("has its members in the order added, whatever is deleted", () => {
    const step = fc.record({ adds: fc.boolean(), at: fc.nat() });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 100 }), (steps) => {
        const list = new LinkedList<Member>();
        const expected: Member[] = [];
        for (const [name, { adds, at }] of steps.entries()) {
          const member = adds ? { name } : expected[at % (expected.length || 1)];
          if (adds) expected.push(member as Member);
          else expected.splice(at % (expected.length || 1), 1);
          if (adds) list.add(member as Member);
          else if (member !== undefined) list.delete(member);
          expect([...list].map((each) => each.name)).toEqual(expected.map((each) => each.name));
          expect([list.first, list.size]).toEqual([expected[0], expected.length]);
        }
      }),
    );
  });

  test("deletes nothing twice, and nothing that is in no list", () => {
    const list = new LinkedList<Member>();
    const [a, b, c] = [{ name: 1 }, { name: 2 }, { name: 3 }];
    for (const member of [a, b]) list.add(member);
    expect([a, a, c].map((member) => list.delete(member))).toEqual([true, false, false]);
    expect([[...list], list.size]).toEqual([[b], 1]);
    expect([b, b].map((member) => list.delete(member))).toEqual([true, false]);
    expect([[...list], list.size, list.first]).toEqual([[], 0, undefined]);
    list.add(a);
    expect([...list]).toEqual([a]);
  });

  test("leaves nothing that refers from a deleted member to later ones", () => {
    const list = new LinkedList<Member>();
    const members: Member[] = [1, 2, 3].map((name) => ({ name }));
    for (const member of members) list.add(member);
    for (const member of members) list.delete(member);
    expect(members.map(({ previous, next }) => [previous, next])).toEqual(members.map(() => [undefined, undefined]));
  });
});
