import { describe, expect, test } from "@jest/globals";
import type { ClaimedRows } from "../../../../src/core/delivery/pull.ts";
import { PullWaiters } from "../../../../src/http/pull/waiters.ts";
import { StoreError } from "../../../../src/model/errors.ts";
import type { ClaimToken } from "../../../../src/model/rows.ts";
import { manualTime, settle } from "../../../support/manualTime.ts";
import { pulledRow } from "./harness.ts";

interface Look {
  readonly max: number;
  readonly find: (claimed: ClaimedRows | null) => Promise<void>;
  readonly fail: (error: Error) => Promise<void>;
}

/** The queue of the source `orders` over a database whose answers the test gives. */
function setUp() {
  const time = manualTime();
  const looks: Look[] = [];
  const waiters = new PullWaiters({
    sources: ["orders", "payments"],
    pull: {
      claim: (_source, { max }) =>
        new Promise((resolve, reject) => {
          looks.push({
            max,
            find: async (claimed) => {
              resolve(claimed);
              await settle();
            },
            fail: async (error) => {
              reject(error);
              await settle();
            },
          });
        }),
    },
    timer: time.timer,
  });
  /** A client that asks for `max` messages, which tells it from the others. */
  const client = (max: number, waitMs = 60_000, source = "orders") => {
    const gone = new AbortController();
    const answer: { value?: ClaimedRows | null; error?: unknown } = {};
    let holds = true;
    const request = { max, waitMs, leaseMs: 30_000, isAdmitted: () => holds };
    waiters.claim(source, request, gone.signal).then(
      (value) => {
        answer.value = value;
      },
      (error: unknown) => {
        answer.error = error;
      },
    );
    return {
      answer,
      revoke: () => {
        holds = false;
      },
      leave: async () => {
        gone.abort();
        await settle();
      },
    };
  };
  /** The look that is under way. */
  const look = (): Look => {
    const last = looks.at(-1);
    if (last === undefined) throw new Error("nobody has looked");
    return last;
  };
  return { time, looks, waiters, client, look };
}

const claimed = (token: string): ClaimedRows => ({
  token: token as ClaimToken,
  leaseMs: 30_000,
  rows: [pulledRow()],
});
const NEVER = new AbortController().signal;

describe("a client that asks for messages", () => {
  test("gets them at once when there are some", async () => {
    const { client, look, time } = setUp();
    const { answer } = client(1);
    await look().find(claimed("t"));

    expect(answer.value?.token).toBe("t");
    expect(time.pending()).toEqual([]);
  });

  test("gets an empty answer after one look when it does not wait", async () => {
    const { client, look, looks, time } = setUp();
    const { answer } = client(1, 0);
    await look().find(null);

    expect(answer).toEqual({ value: null });
    expect(looks).toHaveLength(1);
    expect(time.pending()).toEqual([]);
  });

  test("waits, and is woken by a receipt", async () => {
    const { client, look, looks, waiters } = setUp();
    const { answer } = client(1);
    await look().find(null);
    expect(answer).toEqual({});

    waiters.wake("payments");
    waiters.wake("unheard-of");
    await settle();
    expect(looks).toHaveLength(1);
    waiters.wake("orders");
    await settle();
    await look().find(claimed("t"));

    expect(looks).toHaveLength(2);
    expect(answer.value?.token).toBe("t");
  });

  test("meets within a quarter of a second what nobody wakes for", async () => {
    const { client, look, looks, time } = setUp();
    const { answer } = client(1);
    await look().find(null);
    await time.advance(249);
    expect(looks).toHaveLength(1);
    await time.advance(1);
    await look().find(claimed("t"));

    expect(answer.value?.token).toBe("t");
  });

  test("gets its answer when its time is over, after a last look", async () => {
    const { client, look, time } = setUp();
    const { answer } = client(1, 100);
    await look().find(null);
    await time.advance(99);
    expect(answer).toEqual({});
    await time.advance(1);
    await look().find(null);

    expect(answer).toEqual({ value: null });
    expect(time.pending()).toEqual([]);
  });
});

describe("many clients", () => {
  test("share one look at a time, and each look that finds nothing", async () => {
    const { client, look, looks, time } = setUp();
    for (let n = 1; n <= 100; n += 1) client(n);
    expect(looks).toHaveLength(1);
    await look().find(null);
    // Clients that came during the first look have not been looked for yet.
    expect(looks.map(({ max }) => max)).toEqual([1, 1]);
    await look().find(null);
    for (let n = 0; n < 4; n += 1) {
      await time.advance(250);
      await look().find(null);
    }

    expect(looks).toHaveLength(6);
  });

  test("are served in the order in which they came", async () => {
    const { client, look, looks } = setUp();
    const clients = [client(1), client(2), client(3)];
    await look().find(claimed("first"));
    await look().find(claimed("second"));
    await look().find(null);

    expect(looks.map(({ max }) => max)).toEqual([1, 2, 3]);
    expect(clients.map(({ answer }) => answer.value?.token)).toEqual(["first", "second", undefined]);
  });

  test("who do not wait are answered by one look that began after they came", async () => {
    const { client, look, looks } = setUp();
    const waiting = client(1);
    const late = [client(2, 0), client(3, 0)];
    await look().find(null);
    expect(late.map(({ answer }) => answer)).toEqual([{}, {}]);
    await look().find(null);

    expect(late.map(({ answer }) => answer)).toEqual([{ value: null }, { value: null }]);
    expect(waiting.answer).toEqual({});
    expect(looks).toHaveLength(2);
  });

  test("all learn at once that the database has failed", async () => {
    const { client, look, looks } = setUp();
    const present = [client(1), client(2)];
    const first = look();
    const error = new StoreError("unavailable", "pull.claim: connection lost");
    await first.fail(error);
    expect(looks).toHaveLength(2);
    await look().fail(error);

    expect(present.map(({ answer }) => answer)).toEqual([{ error }, { error }]);
  });
});

describe("a client that goes away", () => {
  test("while it waits is not looked for any more", async () => {
    const { client, look, looks, time } = setUp();
    const { answer, leave } = client(1);
    await look().find(null);
    await leave();
    await time.advance(1000);

    expect(answer).toEqual({ value: null });
    expect(looks).toHaveLength(1);
    expect(time.pending()).toEqual([]);
  });
});

describe("a client whose credentials have ceased to hold while it waited", () => {
  test("gets nothing at the next look, which is for the client behind it", async () => {
    const { client, look, looks, waiters } = setUp();
    const [first, second] = [client(1), client(2)];
    await look().find(null);
    await look().find(null);
    first.revoke();
    waiters.wake("orders");
    await settle();

    expect([first.answer, second.answer]).toEqual([{ value: null }, {}]);
    expect(looks.map(({ max }) => max)).toEqual([1, 1, 2]);
    await look().find(claimed("t"));
    expect(second.answer.value?.token).toBe("t");
  });
});

describe("the stop", () => {
  test("answers everybody who waits at once, and later clients too", async () => {
    const { client, look, looks, waiters, time } = setUp();
    const clients = [client(1), client(2)];
    await look().find(null);
    await look().find(null);

    await waiters.stop(NEVER);
    await settle();
    const late = client(3);
    await settle();

    expect([...clients, late].map(({ answer }) => answer)).toEqual([{ value: null }, { value: null }, { value: null }]);
    expect(looks).toHaveLength(2);
    expect(time.pending()).toEqual([]);
  });

  test("waits for the look under way, whose client gets what it finds", async () => {
    const { client, look, waiters } = setUp();
    const { answer } = client(1);
    let stopped = false;
    const stopping = waiters.stop(NEVER).then(() => {
      stopped = true;
    });
    await settle();
    expect(stopped).toBe(false);
    await look().find(claimed("t"));
    await stopping;

    expect(answer.value?.token).toBe("t");
  });
});
