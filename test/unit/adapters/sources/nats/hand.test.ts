import { describe, expect, test } from "@jest/globals";
import { type Delivery, Hand } from "../../../../../src/adapters/sources/nats/acknowledgement.ts";

const delivery = (name: string): Delivery => ({ acknowledgeTo: name, message: { body: null, headers: {} } });
const names = (deliveries: readonly Delivery[]) => deliveries.map(({ acknowledgeTo }) => acknowledgeTo).join(" ");
const fill = (hand: Hand, text: string) => {
  for (const name of text.split(" ")) hand.add(delivery(name));
};

describe("the messages at hand of a NATS source", () => {
  test("come out in batches, in the order of their arrival", async () => {
    const hand = new Hand(3);
    fill(hand, "a b c d e");
    expect(names(await hand.next())).toBe("a b c");
    expect(names(hand.all)).toBe("a b c d e");
    hand.done();
    expect(names(await hand.next())).toBe("d e");
  });

  test("are waited for, and come together when they arrive together", async () => {
    const hand = new Hand(3);
    const next = hand.next();
    fill(hand, "a b");
    expect(names(await next)).toBe("a b");
  });

  test("leave room for another batch until they are more than one", async () => {
    const hand = new Hand(3);
    fill(hand, "a b c");
    expect(hand.hasRoom).toBe(true);
    await hand.next();
    expect(hand.hasRoom).toBe(true);
    fill(hand, "d");
    expect(hand.hasRoom).toBe(false);
    hand.done();
    expect(hand.hasRoom).toBe(true);
  });

  test("stay when it is closed, whether somebody waits or comes later, and are released once", async () => {
    const hand = new Hand(3);
    const next = hand.next();
    hand.close();
    fill(hand, "a b");
    expect(await next).toEqual([]);
    expect(await hand.next()).toEqual([]);
    expect(names(hand.release())).toBe("a b");
    expect(hand.release()).toEqual([]);
  });
});
