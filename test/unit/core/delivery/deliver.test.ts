import { describe, expect, test } from "@jest/globals";
import {
  createDelivery,
  createRetryPolicy,
  type DeliveryRoute,
  type DeliveryTarget,
  type TransformStage,
} from "../../../../src/core/delivery/deliver.ts";
import {
  compileAddress,
  compileHeaderValue,
  compileOutboundHeaders,
  messageFields,
  parseRoutingKeyTemplate,
} from "../../../../src/core/delivery/template.ts";
import { createRedactor, KnownSecrets } from "../../../../src/core/redaction/redact.ts";
import { ClaimLostError, PublishError, StoppingError } from "../../../../src/model/errors.ts";
import {
  type ClaimedRow,
  type ClaimToken,
  type DeliverableRow,
  EXPIRED,
  type MessageId,
} from "../../../../src/model/rows.ts";
import type { OutboundMessage } from "../../../../src/ports/destination.ts";
import { ManualClock, recordingLog, recordingMetrics } from "../../../support/recorders.ts";

const SECRET = "hunter2-hunter2";
const CREATED = Date.UTC(2024, 0, 1);
const CLAIM = { id: "01980000-0000-7000-8000-000000000001" as MessageId, claimToken: "token" as ClaimToken };

const row = (overrides: Partial<ClaimedRow> = {}): ClaimedRow => ({
  ...CLAIM,
  sequence: "1",
  topic: "orders.created",
  destinationOverride: null,
  key: "k1",
  aggregateType: null,
  payload: '{ "id": 1.0 }',
  headers: { "x-tenant": "row" },
  attempt: 0,
  maxAttempts: 5,
  createdAt: new Date(CREATED),
  expiresInMs: null,
  ...overrides,
});

const ROUTE: DeliveryRoute = {
  topicPattern: "orders.*",
  destination: "shop",
  routingKey: null,
  routingKeyMissing: "",
  transform: null,
  onExhausted: "dead",
};

type Publish = (message: OutboundMessage, signal: AbortSignal) => Promise<void>;

function setup(
  options: {
    readonly publish?: Publish;
    readonly route?: Partial<DeliveryRoute>;
    readonly target?: Partial<DeliveryTarget>;
    readonly history?: "off" | "failures" | "all";
    /** Behind the route and target that are always there. */
    readonly routes?: readonly DeliveryRoute[];
    readonly targets?: Readonly<Record<string, DeliveryTarget>>;
  } = {},
) {
  const { log, lines } = recordingLog();
  const { metrics, calls } = recordingMetrics();
  const clock = new ManualClock(CREATED + 2000);
  const published: OutboundMessage[] = [];
  const publish: Publish = async (message, signal) => {
    published.push(message);
    clock.advance(500);
    await options.publish?.(message, signal);
  };
  const delivery = createDelivery({
    history: options.history ?? "off",
    replica: "replica-1",
    routes: [{ ...ROUTE, ...options.route }, ...(options.routes ?? [])],
    targets: new Map<string, DeliveryTarget>([
      ...Object.entries(options.targets ?? {}),
      [
        "shop",
        {
          kind: "http",
          destination: { publish, close: async () => {} },
          headers: { "x-tenant": "static", "x-fixed": "1" },
          address: null,
          routingKey: null,
          transform: null,
          retryPolicy: createRetryPolicy(undefined, 1000),
          maxAttempts: undefined,
          ...options.target,
        },
      ],
    ]),
    redact: createRedactor(new KnownSecrets([SECRET]), 200),
    metrics,
    log,
    clock,
    random: () => 0,
  });
  return { delivery, lines, calls, published, clock };
}

const never = new AbortController().signal;
const failing =
  (error: unknown): Publish =>
  async () => {
    throw error;
  };

test("a row that has expired is dead without an attempt, and says nothing about its receiver", async () => {
  const { delivery, published, calls } = setup({ history: "failures" });
  const { outcome, report } = await delivery.deliver(row({ expiresInMs: 0, attempt: 2 }), never);
  expect(outcome).toMatchObject({
    ...CLAIM,
    kind: "dead",
    attempted: false,
    reason: EXPIRED,
    record: { attempt: null },
  });
  expect(report).toEqual({ receiver: "unasked" });
  expect(published).toEqual([]);
  expect(calls).toEqual(["outboxMessages(dead, 1)", "outboxDestinationMessage(shop, dead)"]);
});

describe("a delivery that succeeds", () => {
  test("publishes the payload as it is stored, with merged headers, and settles the row as sent", async () => {
    const { delivery, published } = setup();
    expect((await delivery.deliver(row(), never)).outcome).toEqual({ ...CLAIM, kind: "sent" });
    expect(published).toEqual([
      {
        id: CLAIM.id,
        topic: "orders.created",
        key: "k1",
        body: '{ "id": 1.0 }',
        headers: {
          "content-type": "application/json",
          "x-fixed": "1",
          "x-tenant": "row",
          "x-message-id": CLAIM.id,
        },
        address: null,
        routingKey: null,
      },
    ]);
  });

  test("counts, measures publish and latency in seconds, and logs a line without payload and headers", async () => {
    const { delivery, calls, lines } = setup();
    await delivery.deliver(row({ attempt: 2 }), never);
    expect(calls).toEqual([
      "outboxPublishDuration(http, 0.5)",
      "outboxMessages(sent, 1)",
      "outboxDestinationMessage(shop, sent)",
      "deliveryLatency(2.5)",
    ]);
    expect(lines).toEqual([
      {
        level: "info",
        message: "delivery attempted",
        fields: {
          id: CLAIM.id,
          topic: "orders.created",
          key: "k1",
          destination: "shop",
          destinationKind: "http",
          attempt: 2,
          maxAttempts: 5,
          outcome: "sent",
          durationMs: 500,
        },
      },
    ]);
  });

  test("never measures a negative latency when the database's clock is ahead", async () => {
    const { delivery, calls } = setup();
    await delivery.deliver(row({ createdAt: new Date(CREATED + 60_000) }), never);
    expect(calls).toContain("deliveryLatency(0)");
  });

  test("renders address and routing key from the stored row, also when a transform changes the body", async () => {
    const { delivery, published } = setup({
      route: {
        routingKey: parseRoutingKeyTemplate("{{ payload.id }}.{{ payload.none }}"),
        routingKeyMissing: "x",
        transform: { onError: "Fail", run: async () => '{"id":"changed"}' },
      },
      target: {
        address: compileAddress({ name: "exchange", template: "ex.{{ payload.id }}", from: undefined }),
        routingKey: { template: parseRoutingKeyTemplate("{{ topic }}"), emptyMeansNone: false },
      },
    });
    await delivery.deliver(row(), never);
    expect(published[0]).toMatchObject({ body: '{"id":"changed"}', address: "ex.1.0", routingKey: "1.0.x" });
  });
});

describe("a delivery that fails", () => {
  test("is retried after the backoff while attempts are left", async () => {
    const { delivery, calls, lines } = setup({ publish: failing(new PublishError("status_5xx", "answered 500")) });
    expect((await delivery.deliver(row({ attempt: 1 }), never)).outcome).toEqual({
      ...CLAIM,
      kind: "retry",
      delayMs: 2000,
      reason: "answered 500",
    });
    expect(calls).toEqual([
      "outboxPublishDuration(http, 0.5)",
      "outboxMessages(failed, 1)",
      "outboxDestinationMessage(shop, failed)",
    ]);
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatchObject({
      level: "warn",
      fields: { attempt: 1, outcome: "retry", code: "status_5xx", reason: "answered 500", retryDelayMs: 2000 },
    });
  });

  test("that can never succeed makes the row dead at once, with its attempt counted", async () => {
    const error = new PublishError("message_invalid", "the routing key has 300 bytes", { isPermanent: true });
    const { delivery, calls } = setup({ publish: failing(error) });
    expect((await delivery.deliver(row(), never)).outcome).toEqual({
      ...CLAIM,
      kind: "dead",
      attempted: true,
      reason: "the routing key has 300 bytes",
    });
    expect(calls).toContain("outboxMessages(dead, 1)");
  });

  test("waits as long as the receiver asks", async () => {
    const { delivery } = setup({ publish: failing(new PublishError("status_4xx", "slow", { retryAfterMs: 7000 })) });
    expect((await delivery.deliver(row(), never)).outcome).toMatchObject({ kind: "retry", delayMs: 7000 });
  });

  test("is dead when the attempts are used up", async () => {
    const { delivery, calls, lines } = setup({ publish: failing(new PublishError("timeout", "too slow")) });
    expect((await delivery.deliver(row({ attempt: 4 }), never)).outcome).toEqual({
      ...CLAIM,
      kind: "dead",
      attempted: true,
      reason: "too slow",
    });
    expect(calls).toContain("outboxMessages(dead, 1)");
    expect(calls).toContain("outboxDestinationMessage(shop, dead)");
    expect(lines[0]).toMatchObject({ level: "error", fields: { outcome: "dead", code: "timeout" } });
  });

  test.each([
    ["whose attempts are used up", new PublishError("timeout", "too slow"), 4],
    ["that can never succeed", new PublishError("message_invalid", "too slow", { isPermanent: true }), 0],
  ])("%s parks the row where its route says so, and counts as failed", async (_, error, attempt) => {
    const { delivery, calls, lines } = setup({ publish: failing(error), route: { onExhausted: "park" } });
    const { outcome } = await delivery.deliver(row({ attempt }), never);
    expect(outcome).toEqual({ ...CLAIM, kind: "park", reason: "too slow" });
    expect(calls).toEqual([
      "outboxPublishDuration(http, 0.5)",
      "outboxMessages(failed, 1)",
      "outboxDestinationMessage(shop, failed)",
      "outboxParked(shop)",
    ]);
    expect(lines).toMatchObject([
      {
        level: "error",
        message: expect.stringMatching(/^parked: .*svc parked retry.*svc parked discard/),
        fields: { outcome: "park", code: error.code, reason: "too slow" },
      },
    ]);
  });

  test("costs a probe neither an attempt nor a count where the receiver did not work, and only there", async () => {
    const probe = async (error: PublishError) => {
      const { delivery, calls } = setup({ publish: failing(error) });
      const { outcome, report } = await delivery.deliver(row({ attempt: 4 }), never, true);
      return [outcome.kind, report.receiver, calls.filter((call) => call.startsWith("outboxMessages"))];
    };
    expect(await probe(new PublishError("status_5xx", "503"))).toEqual(["release", "failed", []]);
    expect(await probe(new PublishError("no_stream", "no stream"))).toEqual(["release", "unknown", []]);
    expect(await probe(new PublishError("other", "a bug"))).toEqual(["release", "unknown", []]);
    expect(await probe(new PublishError("status_4xx", "400"))).toEqual([
      "dead",
      "healthy",
      ["outboxMessages(dead, 1)"],
    ]);
    const isEmpty = new PublishError("address_empty", "the address is empty");
    expect(await probe(isEmpty)).toEqual(["dead", "unasked", ["outboxMessages(dead, 1)"]]);
  });

  test("with attempts left is retried also where its route parks", async () => {
    const { delivery, calls } = setup({
      publish: failing(new PublishError("timeout", "too slow")),
      route: { onExhausted: "park" },
    });
    expect((await delivery.deliver(row({ attempt: 3 }), never)).outcome).toMatchObject({ kind: "retry" });
    expect(calls).not.toContain("outboxParked(shop)");
  });

  test("without an attempt makes the row dead also where its route parks", async () => {
    const transform: TransformStage = {
      onError: "Dead",
      run: async () => {
        throw new Error("no such field");
      },
    };
    const { delivery } = setup({ route: { onExhausted: "park", transform } });
    for (const each of [row(), row({ payload: null })]) {
      const { outcome } = await delivery.deliver(each, never);
      expect(outcome).toMatchObject({ kind: "dead", attempted: false });
    }
  });

  test.each([
    [new Error("boom"), "boom"],
    ["text", "text"],
    [undefined, "undefined"],
    [Object.create(null), "an error without a text was thrown"],
  ])("for any other reason is a failed attempt with its text: %p", async (thrown, reason) => {
    const { delivery } = setup({ publish: failing(thrown) });
    expect((await delivery.deliver(row(), never)).outcome).toMatchObject({ kind: "retry", reason });
  });

  test("tells its reason without secrets, on one line, cut to its limit, in the row and in the log", async () => {
    const { delivery, lines } = setup({
      publish: failing(new PublishError("status_4xx", `bad\u0000 ${SECRET}\n${"x".repeat(500)}`)),
    });
    const { outcome } = await delivery.deliver(row(), never);
    expect(outcome).toMatchObject({ reason: `bad *** ${"x".repeat(191)}…` });
    expect(JSON.stringify([outcome, lines])).not.toContain(SECRET);
  });

  test("fails when its address is empty, without a publish", async () => {
    const { delivery, published, calls } = setup({
      target: { address: compileAddress({ name: "subject", template: "{{ aggregateType }}", from: undefined }) },
    });
    const { outcome } = await delivery.deliver(row(), never);
    expect(outcome).toMatchObject({ kind: "retry", reason: expect.stringContaining("the subject is empty") });
    expect(published).toEqual([]);
    expect(calls).not.toContainEqual(expect.stringContaining("outboxPublishDuration"));
  });
});

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

  test("of a success is there where all are kept", async () => {
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

  test("is not there for a release, nor where none is kept", async () => {
    const stopping = AbortSignal.abort(new StoppingError());
    const { delivery } = setup({ history: "all" });
    expect((await delivery.deliver(row(), stopping)).outcome).toEqual({ ...CLAIM, kind: "release" });
    const { outcome } = await setup({ publish: failure, history: "off" }).delivery.deliver(row(), never);
    expect(outcome.record).toBeUndefined();
  });
});

describe("a topic that no route matches", () => {
  test("makes the row dead with a reason that names it, without an attempt", async () => {
    const { delivery, published, calls, lines } = setup();
    expect((await delivery.deliver(row({ topic: "invoices" }), never)).outcome).toEqual({
      ...CLAIM,
      kind: "dead",
      attempted: false,
      reason: 'no route matches the topic "invoices"',
    });
    expect(published).toEqual([]);
    expect(calls).toEqual(["outboxMessages(dead, 1)"]);
    expect(lines).toHaveLength(1);
  });

  test("has no destination", () => {
    const { delivery } = setup();
    expect(delivery.destinationOf(row({ topic: "invoices" }))).toBeUndefined();
    expect(delivery.destinationOf(row({ topic: "orders.paid" }))).toBe("shop");
  });
});

describe("a row that was replayed to another destination", () => {
  const elsewhere: OutboundMessage[] = [];
  const stage = (mark: string): TransformStage => ({ onError: "Fail", run: async (body) => `${mark}${body}` });
  const standby: DeliveryTarget = {
    kind: "http",
    destination: { publish: async (message) => void elsewhere.push(message), close: async () => {} },
    headers: { "x-for": "standby" },
    address: null,
    routingKey: null,
    transform: stage("target "),
    retryPolicy: createRetryPolicy(undefined, 1000),
    maxAttempts: undefined,
  };
  const more = {
    targets: { standby },
    routes: [{ ...ROUTE, topicPattern: "audit.*", destination: "standby", transform: stage("route ") }],
  };

  test("goes there, with that one's headers and transform, and without the transform of its topic's route", async () => {
    elsewhere.length = 0;
    const { delivery, published, calls } = setup({ route: { transform: stage("shop ") }, ...more });
    const redirected = row({ destinationOverride: "standby" });
    expect(delivery.destinationOf(redirected)).toBe("standby");
    expect((await delivery.deliver(redirected, never)).outcome).toEqual({ ...CLAIM, kind: "sent" });
    expect(published).toEqual([]);
    expect(elsewhere).toMatchObject([{ topic: "orders.created", body: 'target { "id": 1.0 }' }]);
    expect(elsewhere[0]?.headers).toMatchObject({ "x-for": "standby" });
    expect(calls).toContain("outboxDestinationMessage(standby, sent)");
  });

  test("goes by the route of its topic to that destination where there is one", async () => {
    elsewhere.length = 0;
    const { delivery } = setup(more);
    await delivery.deliver(row({ topic: "audit.log", destinationOverride: "standby" }), never);
    expect(elsewhere).toMatchObject([{ body: 'target route { "id": 1.0 }' }]);
  });

  test("is dead, with a reason that says what to do, where there is no such destination", async () => {
    const { delivery, published } = setup(more);
    const lost = row({ destinationOverride: "Standby" });
    expect(delivery.destinationOf(lost)).toBeUndefined();
    expect((await delivery.deliver(lost, never)).outcome).toEqual({
      ...CLAIM,
      kind: "dead",
      attempted: false,
      reason: 'there is no destination "Standby", to which the row was replayed: replay it to another one',
    });
    expect(published).toEqual([]);
  });
});

describe("what only an owner's table lets in", () => {
  test.each([
    ["topic", { topic: null }],
    ["payload", { payload: null }],
  ])(
    "a NULL %s makes the row dead with a reason that says so, without an attempt or a publish",
    async (name, nulls) => {
      const { delivery, published, calls } = setup();
      expect((await delivery.deliver(row(nulls), never)).outcome).toEqual({
        ...CLAIM,
        kind: "dead",
        attempted: false,
        reason: `the column of the ${name} is NULL: there is nothing to deliver`,
      });
      expect(published).toEqual([]);
      expect(calls).toContain("outboxMessages(dead, 1)");
    },
  );

  test("a row without a time of creation is delivered, and its latency is not measured", async () => {
    const { delivery, calls } = setup();
    expect((await delivery.deliver(row({ createdAt: null }), never)).outcome).toEqual({ ...CLAIM, kind: "sent" });
    expect(calls.filter((call) => call.startsWith("deliveryLatency"))).toEqual([]);
  });

  test("a row without a topic has no destination", () => {
    expect(setup().delivery.destinationOf(row({ topic: null }))).toBeUndefined();
  });
});

describe("an interruption", () => {
  test.each([new StoppingError(), new ClaimLostError()])(
    "by %s during the publish gives the row back",
    async (reason) => {
      const controller = new AbortController();
      const { delivery, calls, lines } = setup({
        publish: (_message, signal) =>
          new Promise((_, reject) => {
            signal.addEventListener("abort", () => reject(signal.reason));
            controller.abort(reason);
          }),
      });
      expect(await delivery.deliver(row(), controller.signal)).toEqual({
        outcome: { ...CLAIM, kind: "release" },
        report: { receiver: "unknown", reason: reason.message },
      });
      expect(calls.filter((call) => call.startsWith("outboxMessages"))).toEqual([]);
      expect(lines).toMatchObject([{ level: "info", fields: { outcome: "release", reason: reason.message } }]);
    },
  );

  test("before the publish publishes nothing", async () => {
    const { delivery, published } = setup();
    expect(await delivery.deliver(row(), AbortSignal.abort(new StoppingError()))).toEqual({
      outcome: { ...CLAIM, kind: "release" },
      report: { receiver: "unasked" },
    });
    expect(published).toEqual([]);
  });

  test("during a transform publishes nothing", async () => {
    const controller = new AbortController();
    const { delivery, published } = setup({
      route: {
        transform: {
          onError: "Fail",
          run: async (body) => {
            controller.abort(new StoppingError());
            return body;
          },
        },
      },
    });
    expect((await delivery.deliver(row(), controller.signal)).outcome).toEqual({ ...CLAIM, kind: "release" });
    expect(published).toEqual([]);
  });

  test("that comes just after the receiver refused leaves a failed attempt", async () => {
    const controller = new AbortController();
    const { delivery } = setup({
      publish: async () => {
        controller.abort(new StoppingError());
        throw new PublishError("status_4xx", "refused");
      },
    });
    expect((await delivery.deliver(row(), controller.signal)).outcome).toMatchObject({
      kind: "retry",
      reason: "refused",
    });
  });

  test("for another reason is a failed attempt", async () => {
    const { delivery } = setup();
    const { outcome } = await delivery.deliver(row(), AbortSignal.abort(new Error("out of time")));
    expect(outcome).toMatchObject({ kind: "retry", reason: "out of time" });
  });
});

describe("transforms", () => {
  const append = (text: string): TransformStage => ({ onError: "Fail", run: async (body) => body + text });
  const broken = (onError: TransformStage["onError"]): TransformStage => ({
    onError,
    run: async () => {
      throw new Error(`no number near ${SECRET}`);
    },
  });

  test("run in the order route, destination, each on the output of the one before", async () => {
    const { delivery, published } = setup({
      route: { transform: append("+route") },
      target: { transform: append("+destination") },
    });
    await delivery.deliver(row({ payload: "p" }), never);
    expect(published[0]?.body).toBe("p+route+destination");
  });

  test("with onError Fail fail the delivery, which is retried and counted", async () => {
    const { delivery, published, calls, lines } = setup({ target: { transform: broken("Fail") } });
    expect((await delivery.deliver(row(), never)).outcome).toEqual({
      ...CLAIM,
      kind: "retry",
      delayMs: 1000,
      reason: "the destination transform failed: no number near ***",
    });
    expect(published).toEqual([]);
    expect(calls[0]).toBe("transformFailure(Fail)");
    expect(lines[0]?.fields.code).toBe("transform_failed");
  });

  test("with onError Skip pass their input on", async () => {
    const { delivery, published, calls } = setup({
      route: { transform: broken("Skip") },
      target: { transform: append("+destination") },
    });
    expect((await delivery.deliver(row({ payload: "p" }), never)).outcome).toMatchObject({ kind: "sent" });
    expect(published[0]?.body).toBe("p+destination");
    expect(calls[0]).toBe("transformFailure(Skip)");
  });

  test.each(["Fail", "Skip", "Dead"] as const)(
    "with onError %s fail the delivery when they cannot be run at all",
    async (onError) => {
      const run = failing(
        new PublishError("transform_unavailable", "no transform could be run"),
      ) as () => Promise<never>;
      const { delivery, published, calls } = setup({ target: { transform: { onError, run } } });
      expect((await delivery.deliver(row(), never)).outcome).toMatchObject({
        kind: "retry",
        reason: "no transform could be run",
      });
      expect(published).toEqual([]);
      expect(calls).not.toContain(`transformFailure(${onError})`);
    },
  );

  test.each(["Fail", "Skip", "Dead"] as const)(
    "with onError %s give the row back when a stop takes them away",
    async (onError) => {
      const controller = new AbortController();
      const run = async () => {
        controller.abort(new StoppingError());
        throw new Error("the evaluator was closed");
      };
      const { delivery, published, calls } = setup({ route: { transform: { onError, run } } });
      expect((await delivery.deliver(row(), controller.signal)).outcome).toEqual({ ...CLAIM, kind: "release" });
      expect(published).toEqual([]);
      expect(calls).toEqual([]);
    },
  );

  test("with onError Dead make the row dead at once, without a counted attempt", async () => {
    const { delivery, published, calls } = setup({ route: { transform: broken("Dead") } });
    expect((await delivery.deliver(row(), never)).outcome).toEqual({
      ...CLAIM,
      kind: "dead",
      attempted: false,
      reason: "the route transform failed: no number near ***",
    });
    expect(published).toEqual([]);
    expect(calls).toEqual([
      "transformFailure(Dead)",
      "outboxMessages(dead, 1)",
      "outboxDestinationMessage(shop, dead)",
    ]);
  });
});

test("a route to an unknown destination is refused, with the known ones", () => {
  expect(() => setup({ route: { destination: "shpo" } })).toThrow(
    "the route orders.* names the unknown destination shpo; known: shop",
  );
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
      undefined,
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

describe("the attempts of a destination", () => {
  const publish = failing(new PublishError("status_5xx", "answered 500"));

  test("win over the column's default, in the log too", async () => {
    const { delivery, lines } = setup({ publish, target: { maxAttempts: 7 } });
    expect((await delivery.deliver(row({ attempt: 5, maxAttempts: 5 }), never)).outcome.kind).toBe("retry");
    expect((await delivery.deliver(row({ attempt: 6, maxAttempts: 5 }), never)).outcome.kind).toBe("dead");
    expect(lines[0]).toMatchObject({ fields: { maxAttempts: 7 } });
  });

  test("leave a row alone for which another number was chosen", async () => {
    const { delivery } = setup({ publish, target: { maxAttempts: 7 } });
    expect((await delivery.deliver(row({ attempt: 3, maxAttempts: 4 }), never)).outcome.kind).toBe("dead");
    expect((await delivery.deliver(row({ attempt: 7, maxAttempts: 9 }), never)).outcome.kind).toBe("retry");
  });
});

const ID = "01980000-0000-7000-8000-000000000001" as MessageId;
const FIELDS = messageFields(row() as DeliverableRow);
describe("the headers of a delivery", () => {
  test("hold the message id and the content type of JSON", () => {
    expect(compileOutboundHeaders({})({}, ID, FIELDS)).toEqual({
      "content-type": "application/json",
      "x-message-id": ID,
    });
  });

  test("of the row win over static ones of the same name in any letter case", () => {
    const headers = compileOutboundHeaders({ "X-Tenant": "static", "X-Other": "kept" });
    expect(headers({ "x-tenant": "row", "X-Mine": "1" }, ID, FIELDS)).toEqual({
      "content-type": "application/json",
      "X-Other": "kept",
      "x-tenant": "row",
      "X-Mine": "1",
      "x-message-id": ID,
    });
  });

  test("keep the content type of the row, else the static one", () => {
    const headers = compileOutboundHeaders({ "Content-Type": "application/vnd.shop+json" });
    expect(headers({}, ID, FIELDS)).toEqual({ "Content-Type": "application/vnd.shop+json", "x-message-id": ID });
    expect(headers({ "CONTENT-TYPE": "text/plain" }, ID, FIELDS)).toEqual({
      "CONTENT-TYPE": "text/plain",
      "x-message-id": ID,
    });
  });

  test("never carry the message id of somebody else", () => {
    const headers = compileOutboundHeaders({ "X-Message-Id": "static" });
    expect(headers({ "X-MESSAGE-ID": "row" }, ID, FIELDS)).toEqual({
      "content-type": "application/json",
      "x-message-id": ID,
    });
  });

  test("hold a name once when the row has it in two spellings", () => {
    expect(compileOutboundHeaders({})({ "x-a": "1", "X-A": "2" }, ID, FIELDS)).toEqual({
      "content-type": "application/json",
      "X-A": "2",
      "x-message-id": ID,
    });
  });

  test("are rendered where they are templates, and left out without a value", () => {
    const headers = compileOutboundHeaders({
      "x-key": compileHeaderValue("key {{ key }}"),
      "x-id": compileHeaderValue("{{ payload.id }}"),
      "x-tenant": compileHeaderValue("{{ headers.tenant }}"),
      "x-fixed": compileHeaderValue("{ topic }}"),
    });
    expect(
      headers(
        { "X-Fixed": "row" },
        ID,
        messageFields(row({ key: null, headers: { tenant: "blue" } }) as DeliverableRow),
      ),
    ).toEqual({
      "content-type": "application/json",
      "x-id": "1.0",
      "x-tenant": "blue",
      "X-Fixed": "row",
      "x-message-id": ID,
    });
    expect(compileHeaderValue("{{ key }} of {{ nothing }}")).toBe("{{ key }} of {{ nothing }}");
  });

  test("of one delivery leave those of the next alone", () => {
    const headers = compileOutboundHeaders({ a: "1" });
    headers({ a: "2", b: "3" }, ID, FIELDS);
    expect(headers({}, ID, FIELDS)).toEqual({ "content-type": "application/json", a: "1", "x-message-id": ID });
  });
});
