import { describe, expect, test } from "@jest/globals";
import { PendingRecord, PublishQueue } from "../../../../../src/adapters/destinations/kafka/queue.ts";
import { InFlight } from "../../../../../src/adapters/destinations/pendingPublish.ts";
import { message } from "../../../../conformance/destination.ts";

const bounds = { inFlight: new InFlight(), signal: new AbortController().signal, timeoutMs: 60_000 };
const pending = (topic: string, bytes = 10) =>
  new PendingRecord(topic, message({ body: JSON.stringify("x".repeat(bytes)) }), bounds, "localhost:9092");
const anyTopic = () => true;

function queueOf(...records: readonly PendingRecord[]): PublishQueue {
  const queue = new PublishQueue();
  for (const each of records) queue.add(each);
  return queue;
}

describe("the records of a request", () => {
  test("are those of all topics that are ready, in their order", () => {
    const [a1, b1, a2, c1] = ["a", "b", "a", "c"].map((topic) => pending(topic));
    const queue = queueOf(...[a1, b1, a2, c1].flatMap((each) => each ?? []));
    expect(queue.take((topic) => topic !== "b").records).toEqual([a1, a2, c1]);
    expect([...queue.topics()]).toEqual(["b"]);
  });

  test("are bounded in number and bytes, and every topic gets its turn", () => {
    const queue = queueOf(...Array.from({ length: 600 }, () => pending("busy")), pending("quiet"));
    expect(queue.take(anyTopic).records).toHaveLength(500);
    expect(queue.take(anyTopic).records.map(({ topic }) => topic)).toContain("quiet");
    const large = queueOf(...Array.from({ length: 10 }, () => pending("a", 200_000)));
    expect(large.take(anyTopic).records).toHaveLength(4);
  });

  test("are one alone when it is larger than the bounds", () => {
    const queue = queueOf(pending("a"), pending("b", 2_000_000), pending("c"));
    expect(queue.take(anyTopic).records.map(({ topic }) => topic)).toEqual(["a", "c"]);
    expect(queue.take(anyTopic).records.map(({ topic }) => topic)).toEqual(["b"]);
  });

  test("are fewer once a topic has turned out to take less", () => {
    const queue = queueOf(...Array.from({ length: 8 }, () => pending("a", 20_000)));
    queue.shrink("a", 100_000);
    expect(queue.take(anyTopic).records).toHaveLength(2);
  });

  test("are a group that is tried again, before anything else and alone", () => {
    const queue = queueOf(pending("a"));
    const group = { records: [pending("a"), pending("a")], repeated: true };
    queue.addGroup(group);
    expect(queue.take(anyTopic)).toBe(group);
    expect(queue.take(anyTopic).records).toHaveLength(1);
  });

  test("leave out what nobody waits for any more", async () => {
    const [over, waiting] = [pending("a"), pending("b")];
    const queue = queueOf(over, waiting);
    over.fail(new Error("over"));
    await expect(over.outcome).rejects.toThrow("over");
    expect([...queue.topics()]).toEqual(["b"]);
    expect(queue.take(anyTopic).records).toEqual([waiting]);
  });
});
