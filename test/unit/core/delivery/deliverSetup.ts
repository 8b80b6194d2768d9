import {
  createDelivery,
  type DeliveryRoute,
  type DeliveryTarget,
  type TransformStage,
} from "../../../../src/core/delivery/deliver.ts";
import { createRetryPolicy } from "../../../../src/core/delivery/failure.ts";
import { compileRouting } from "../../../../src/core/delivery/routing.ts";
import { createRedactor, KnownSecrets } from "../../../../src/core/redaction/redact.ts";
import type { ClaimedRow, ClaimToken, MessageId } from "../../../../src/model/rows.ts";
import type { OutboundMessage } from "../../../../src/ports/destination.ts";
import { ManualClock, recordingLog, recordingMetrics } from "../../../support/recorders.ts";
import { outboxRow } from "../../../support/scriptedOutbox.ts";

export const SECRET = "hunter2-hunter2";
export const CREATED = Date.UTC(2024, 0, 1);
export const CLAIM = { id: "01980000-0000-7000-8000-000000000001" as MessageId, claimToken: "token" as ClaimToken };

export const row = (overrides: Partial<ClaimedRow> = {}): ClaimedRow => ({
  ...outboxRow({
    topic: "orders.created",
    key: "k1",
    payload: '{ "id": 1.0 }',
    headers: { "x-tenant": "row" },
    createdAt: new Date(CREATED),
  }),
  ...CLAIM,
  ...overrides,
});

export const ROUTE: DeliveryRoute = {
  topicPattern: "orders.*",
  destination: "shop",
  routingKey: null,
  routingKeyMissing: "",
  transform: null,
  onExhausted: "dead",
};

type Publish = (message: OutboundMessage, signal: AbortSignal) => Promise<void>;

/** Deliveries to `shop` that take half a second each. */
export function setup(
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
  const routes = [{ ...ROUTE, ...options.route }, ...(options.routes ?? [])];
  const delivery = createDelivery({
    history: options.history ?? "off",
    replica: "replica-1",
    routes,
    routing: compileRouting(routes),
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

export const never = new AbortController().signal;
export const failing =
  (error: unknown): Publish =>
  async () => {
    throw error;
  };

/** A stage that fails, with a secret in its reason. */
export const broken = (onError: TransformStage["onError"]): TransformStage => ({
  onError,
  run: async () => {
    throw new Error(`no number near ${SECRET}`);
  },
});
