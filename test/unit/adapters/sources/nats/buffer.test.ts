import { describe, expect, test } from "@jest/globals";
import { type Delivery, FetchBuffer } from "../../../../../src/adapters/sources/nats/consumer.ts";

const delivery = (name: string): Delivery => ({ acknowledgeTo: name, message: { body: null, headers: {} } });
const names = (deliveries: readonly Delivery[]) => deliveries.map(({ acknowledgeTo }) => acknowledgeTo).join(" ");
const fill = (buffer: FetchBuffer, text: string) => {
  for (const name of text.split(" ")) buffer.add(delivery(name));
};

describe("the fetched messages of a NATS source", () => {
  test("come out in batches, in the order of their arrival", async () => {
    const buffer = new FetchBuffer(3);
    fill(buffer, "a b c d e");
    expect(names(await buffer.next())).toBe("a b c");
    expect(names(buffer.all)).toBe("a b c d e");
    buffer.done();
    expect(names(await buffer.next())).toBe("d e");
  });

  test("are waited for, and come together when they arrive together", async () => {
    const buffer = new FetchBuffer(3);
    const next = buffer.next();
    fill(buffer, "a b");
    expect(names(await next)).toBe("a b");
  });

  test("leave room for another batch until they are more than one", async () => {
    const buffer = new FetchBuffer(3);
    fill(buffer, "a b c");
    expect(buffer.hasRoom).toBe(true);
    await buffer.next();
    expect(buffer.hasRoom).toBe(true);
    fill(buffer, "d");
    expect(buffer.hasRoom).toBe(false);
    buffer.done();
    expect(buffer.hasRoom).toBe(true);
  });

  test("stay when it is closed, whether somebody waits or comes later, and are released once", async () => {
    const buffer = new FetchBuffer(3);
    const next = buffer.next();
    buffer.close();
    fill(buffer, "a b");
    expect(await next).toEqual([]);
    expect(await buffer.next()).toEqual([]);
    expect(names(buffer.release())).toBe("a b");
    expect(buffer.release()).toEqual([]);
  });
});
