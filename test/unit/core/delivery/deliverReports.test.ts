import { describe, expect, test } from "@jest/globals";
import { PublishError, StoppingError } from "../../../../src/model/errors.ts";
import { CLAIM, failing, never, row, setup } from "./deliverSetup.ts";

describe("the record of a delivery", () => {
  const failure = failing(new PublishError("status_5xx", "answered 503", { status: "503" }));
  const record = {
    attempt: 2,
    destination: "shop",
    replica: "replica-1",
    code: "status_5xx",
    status: "503",
    durationMs: 500,
  };

  test("has what its history keeps of a failure", async () => {
    for (const history of ["failures", "all"] as const) {
      const { delivery } = setup({ publish: failure, history });
      expect((await delivery.deliver(row({ attempt: 1 }), never)).outcome.record).toEqual(record);
    }
  });

  test("of a success is there if all are kept", async () => {
    const kept = async (history: "failures" | "all") =>
      (await setup({ history }).delivery.deliver(row(), never)).outcome.record;
    expect(await kept("failures")).toBeUndefined();
    expect(await kept("all")).toEqual({ ...record, attempt: 1, code: null, status: null });
  });

  test("of a row that reached no receiver has no attempt", async () => {
    const { delivery } = setup({ history: "failures" });
    const { outcome } = await delivery.deliver(row({ topic: "invoices" }), never);
    expect(outcome.record).toMatchObject({ attempt: null, destination: null, code: null });
  });

  test("is not there for a release, nor if none is kept", async () => {
    const stopping = AbortSignal.abort(new StoppingError());
    const { delivery } = setup({ history: "all" });
    expect((await delivery.deliver(row(), stopping)).outcome).toEqual({ ...CLAIM, kind: "release" });
    const { outcome } = await setup({ publish: failure, history: "off" }).delivery.deliver(row(), never);
    expect(outcome.record).toBeUndefined();
  });
});

describe("what a delivery tells about its receiver", () => {
  test.each([
    [
      "status_503",
      new PublishError("status_5xx", "answered 503", { retryAfterMs: 4000 }),
      "failed",
      4000,
      "answered 503",
    ],
    [
      "a refusal",
      new PublishError("status_4xx", "answered 400", { retryAfterMs: 4000 }),
      "healthy",
      undefined,
      "answered 400",
    ],
    ["an unforeseen error", new Error("bug"), "unknown", undefined, "bug"],
  ])("%s", async (_what, error, receiver, retryAfterMs, reason) => {
    const { delivery } = setup({ publish: failing(error) });
    const { report } = await delivery.deliver(row(), never);
    expect(report).toEqual({ receiver, retryAfterMs, reason });
  });

  test("a success says that it is well, and a row that no route takes says nothing", async () => {
    const { delivery } = setup();
    expect(await delivery.deliver(row(), never)).toMatchObject({ report: { receiver: "healthy" } });
    expect(await delivery.deliver(row({ topic: "nobody" }), never)).toMatchObject({ report: { receiver: "unasked" } });
  });
});
