import { describe, expect, test } from "@jest/globals";
import { InFlight, PendingPublish } from "../../../../src/adapters/destinations/pendingPublish.ts";
import { PublishError } from "../../../../src/model/errors.ts";

class Example extends PendingPublish {
  ends = 0;
  override onEnd = () => {
    this.ends += 1;
  };

  protected override expiryError(): PublishError {
    return new PublishError("timeout", `took longer than ${this.timeoutMs} ms`);
  }
}

/** A publication that is under way. */
function started({ timeoutMs = 60_000, signal = new AbortController().signal, inFlight = new InFlight() } = {}) {
  const publication = new Example({ inFlight, signal, timeoutMs });
  inFlight.add(publication);
  return publication;
}

describe("a publish to a broker", () => {
  test("ends once, with what comes first", async () => {
    const acknowledged = started();
    expect(acknowledged.settled).toBe(false);
    acknowledged.succeed();
    acknowledged.fail(new Error("the connection broke"));
    acknowledged.expire();
    await expect(acknowledged.outcome).resolves.toBeUndefined();
    expect(acknowledged).toMatchObject({ settled: true, ends: 1 });

    const broken = started();
    broken.fail(new Error("the connection broke"));
    broken.succeed();
    await expect(broken.outcome).rejects.toThrow("the connection broke");
    expect(broken).toMatchObject({ settled: true, ends: 1 });
  });

  test("fails with the words of its kind when its time is over", async () => {
    const publication = started({ timeoutMs: 5 });
    await expect(publication.outcome).rejects.toMatchObject({
      code: "timeout",
      message: "took longer than 5 ms",
    });
    expect(publication.ends).toBe(1);
  });

  test("fails with the reason of its signal unless it has ended", async () => {
    const controller = new AbortController();
    const inFlight = new InFlight();
    const { signal } = controller;
    const [over, waiting] = [started({ signal, inFlight }), started({ signal, inFlight })];
    over.succeed();
    const reason = new Error("stop");
    controller.abort(reason);
    await expect(waiting.outcome).rejects.toBe(reason);
    await expect(over.outcome).resolves.toBeUndefined();
  });

  test("fails with all others when its destination closes", async () => {
    const inFlight = new InFlight();
    const publications = [started({ inFlight }), started({ inFlight })];
    const closed = new PublishError("closed", "the destination was closed");
    inFlight.failAll(closed);
    for (const { outcome } of publications) await expect(outcome).rejects.toBe(closed);
  });
});
