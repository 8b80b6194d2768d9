import { createHash } from "node:crypto";
import { BROKER_SOURCE_KINDS } from "../../../../src/adapters/kinds.ts";
import { brokerPlan } from "../../../../src/core/receipt/attributes.ts";
import { createIntake, type IntakeOptions } from "../../../../src/core/receipt/intake.ts";
import type { BrokerMessage } from "../../../../src/ports/source.ts";
import { MemoryInbox } from "../../../support/memoryInbox.ts";
import { ManualClock, recordingLog, recordingMetrics } from "../../../support/recorders.ts";

export const SETTINGS = {
  idempotencyKeyPath: "$.id",
  eventTypePath: "$.type",
  aggregateIdPath: "$.order",
  attributeHeaders: { idempotencyKey: "x-idempotency-key", eventType: "x-event-type", aggregateId: "x-aggregate-id" },
};

/** The intake of a source over a store in memory. */
export function setup(overrides: Partial<IntakeOptions> = {}) {
  const store = new MemoryInbox();
  const { metrics, calls } = recordingMetrics();
  const { log, lines } = recordingLog();
  const waits: number[] = [];
  const intake = createIntake({
    source: "events",
    settings: { consumption: "push" },
    attributes: brokerPlan(SETTINGS, BROKER_SOURCE_KINDS.kafka.attributes),
    insert: (rows) => store.insert(rows),
    async wait(ms, signal) {
      waits.push(ms);
      signal.throwIfAborted();
    },
    redact: (text) => text.replaceAll("hunter2", "***"),
    clock: new ManualClock(),
    random: () => 0,
    metrics,
    log,
    ...overrides,
  });
  const take = (...messages: readonly BrokerMessage[]) => intake.take(messages, new AbortController().signal);
  return { store, calls, lines, waits, intake, take };
}

export const message = (body: string | Buffer | null, rest: Partial<BrokerMessage> = {}): BrokerMessage => ({
  body: body === null ? null : Buffer.from(body),
  headers: {},
  ...rest,
});

/** The sha256 form in which a key is stored. */
export const digest = (bytes: string | Buffer) => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
