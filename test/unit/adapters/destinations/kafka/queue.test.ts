import { describe, expect, test } from "@jest/globals";
import { InFlight } from "../../../../../src/adapters/brokers/inFlight.ts";
import { Publication } from "../../../../../src/adapters/destinations/kafka/publication.ts";
import { PublicationQueue } from "../../../../../src/adapters/destinations/kafka/queue.ts";
import { message } from "../../../../conformance/destination.ts";

const bounds = { inFlight: new InFlight(), signal: new AbortController().signal, timeoutMs: 60_000 };
const publication = (topic: string, bytes = 10) =>
  new Publication(topic, message({ body: JSON.stringify("x".repeat(bytes)) }), bounds, "localhost:9092");
const anyTopic = () => true;

function queueOf(...publications: readonly Publication[]): PublicationQueue {
  const queue = new PublicationQueue();
  for (const each of publications) queue.add(each);
  return queue;
}

describe("the publications of a request", () => {
  test("are those of all topics that are ready, in their order", () => {
    const [a1, b1, a2, c1] = ["a", "b", "a", "c"].map((topic) => publication(topic));
    const queue = queueOf(...[a1, b1, a2, c1].flatMap((each) => each ?? []));
    expect(queue.take((topic) => topic !== "b").publications).toEqual([a1, a2, c1]);
    expect([...queue.topics()]).toEqual(["b"]);
  });

  test("are bounded in number and bytes, and every topic gets its turn", () => {
    const queue = queueOf(...Array.from({ length: 600 }, () => publication("busy")), publication("quiet"));
    expect(queue.take(anyTopic).publications).toHaveLength(500);
    expect(queue.take(anyTopic).publications.map(({ topic }) => topic)).toContain("quiet");
    const large = queueOf(...Array.from({ length: 10 }, () => publication("a", 200_000)));
    expect(large.take(anyTopic).publications).toHaveLength(4);
  });

  test("are one alone when it is larger than the bounds", () => {
    const queue = queueOf(publication("a"), publication("b", 2_000_000), publication("c"));
    expect(queue.take(anyTopic).publications.map(({ topic }) => topic)).toEqual(["a", "c"]);
    expect(queue.take(anyTopic).publications.map(({ topic }) => topic)).toEqual(["b"]);
  });

  test("are fewer once a topic has turned out to take less", () => {
    const queue = queueOf(...Array.from({ length: 8 }, () => publication("a", 20_000)));
    queue.shrink("a", 100_000);
    expect(queue.take(anyTopic).publications).toHaveLength(2);
  });

  test("are a group that is tried again, before anything else and alone", () => {
    const queue = queueOf(publication("a"));
    const group = { publications: [publication("a"), publication("a")], repeated: true };
    queue.addGroup(group);
    expect(queue.take(anyTopic)).toBe(group);
    expect(queue.take(anyTopic).publications).toHaveLength(1);
  });

  test("leave out what nobody waits for any more", async () => {
    const [over, waiting] = [publication("a"), publication("b")];
    const queue = queueOf(over, waiting);
    over.fail(new Error("over"));
    await expect(over.outcome).rejects.toThrow("over");
    expect([...queue.topics()]).toEqual(["b"]);
    expect(queue.take(anyTopic).publications).toEqual([waiting]);
  });
});
