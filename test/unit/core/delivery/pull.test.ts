import { describe, expect, test } from "@jest/globals";
import { Pull } from "../../../../src/core/delivery/pull.ts";
import type { ClaimToken, MessageId } from "../../../../src/model/rows.ts";
import type { PullClaimRequest, PullClaimResult, PulledRow, PullStore } from "../../../../src/ports/pullStore.ts";
import { ManualClock, recordingLog, recordingMetrics } from "../../../support/recorders.ts";

const row = { id: "row" as MessageId, tooLarge: null } as PulledRow;

/** A store whose claims give these results one after the other. */
function setUp(results: readonly Omit<PullClaimResult, "token">[]) {
  const clock = new ManualClock();
  const requests: PullClaimRequest[] = [];
  const { log, lines } = recordingLog();
  const { metrics, calls } = recordingMetrics();
  const store = {
    async claim(request: PullClaimRequest) {
      clock.advance(2000);
      const result = results[requests.length];
      requests.push(request);
      if (result === undefined) throw new Error("one claim too many");
      return { token: `given for ${request.token}` as ClaimToken, ...result };
    },
    acknowledge: async () => ["a" as MessageId],
    extend: async () => ["a" as MessageId],
    reject: async () => ({ retried: ["a" as MessageId], dead: ["b" as MessageId], released: ["c" as MessageId] }),
  } satisfies PullStore;
  let tokens = 0;
  const newToken = () => {
    tokens += 1;
    return `token-${tokens}` as ClaimToken;
  };
  const pull = new Pull({ store, maxAttempts: 3, newToken, redact: (text) => text.trim(), metrics, clock, log });
  return { pull, store, requests, lines, calls };
}

describe("a claim", () => {
  test("is counted with the time it took, and bounds the bytes that are held in memory", async () => {
    const { pull, requests, calls } = setUp([{ rows: [row], dead: [] }]);

    expect(await pull.claim("orders", { max: 7, leaseMs: 1000 })).toEqual({
      token: "given for token-1",
      leaseMs: 1000,
      rows: [row],
    });

    expect(requests).toEqual([
      { source: "orders", token: "token-1", limit: 7, maxBytes: 4_194_304, leaseMs: 1000, maxAttempts: 3 },
    ]);
    expect(calls).toEqual(["claimRows(pull, 1)", "claimDuration(pull, 2)"]);
  });

  test("makes dead what no answer can hold, gives the others but for those behind it, and looks further if none is left", async () => {
    const of = (id: string) => ({ ...row, id: id as MessageId });
    const large = { ...of("b"), tooLarge: "payload" as const };
    const { pull, lines } = setUp([
      { rows: [large], dead: [] },
      { rows: [of("a"), large, of("c")], dead: [] },
    ]);

    expect((await pull.claim("orders", { max: 3, leaseMs: 1000 }))?.rows).toEqual([of("a")]);
    const reason =
      "the payload has more than 64 MiB as text, the most that is delivered: send a reference to larger data";
    expect(lines.map(({ fields }) => fields)).toEqual([1, 2].map(() => ({ id: "b", source: "orders", reason })));
  });

  test("that finds only rows that died looks behind them, and logs each", async () => {
    const dead = ["d-1", "d-2"] as MessageId[];
    const { pull, requests, lines } = setUp([
      { rows: [], dead },
      { rows: [row], dead: [] },
    ]);

    expect((await pull.claim("orders", { max: 2, leaseMs: 1000 }))?.rows).toEqual([row]);

    expect(requests.map(({ token }) => token)).toEqual(["token-1", "token-2"]);
    const reason = "maxAttempts claims without an acknowledgement";
    expect(lines).toEqual(
      dead.map((id) => ({ level: "warn", message: "inbox row is dead", fields: { id, source: "orders", reason } })),
    );
  });
});

describe("what a claim has lost", () => {
  const ids = (...names: string[]) => ({
    source: "orders",
    token: "t" as ClaimToken,
    ids: names as MessageId[],
  });

  test("is what was asked for and not met, is counted and logged", async () => {
    const { pull, calls, lines } = setUp([]);

    expect(await pull.acknowledge(ids("a", "x"))).toEqual({ result: ["a"], lost: ["x"], held: true });
    expect(lines).toEqual([
      { level: "info", message: "pull claim expired or superseded", fields: { source: "orders", lost: 1 } },
    ]);
    expect(await pull.extend(ids("x", "y"), 1000)).toMatchObject({ lost: ["x", "y"] });
    expect(calls).toEqual(["claimsLost(pull, 1)", "claimsLost(pull, 2)"]);
  });

  test("does not hold what was retried or has died", async () => {
    const { pull, calls } = setUp([]);

    expect(await pull.reject(ids("a", "b", "x"), 0, null)).toMatchObject({ lost: ["x"], held: true });
    expect(calls).toEqual(["inboxDead(pull)", "claimsLost(pull, 1)"]);
  });
});
