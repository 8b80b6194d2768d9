import { PublishError } from "../../../src/model/errors.ts";
import type { MessageId } from "../../../src/model/rows.ts";
import type { Destination, OutboundMessage } from "../../../src/ports/destination.ts";
import type { DestinationFixture, DestinationHarness } from "../destination.ts";

let made = 0;

/** A message with an id of its own. */
export function message(overrides: Partial<OutboundMessage> = {}): OutboundMessage {
  const id = `01980000-0000-7000-8000-${String(++made).padStart(12, "0")}` as MessageId;
  return {
    id,
    deliveryId: overrides.id ?? id,
    topic: "orders.created",
    key: null,
    body: '{"order":1}',
    address: null,
    routingKey: null,
    ...overrides,
    headers: { "content-type": "application/json", ...overrides.headers, "x-message-id": overrides.id ?? id },
  };
}

/** What a test of destinations works with. */
export interface DestinationBench {
  /** The fixture of the test that runs. */
  readonly fixture: DestinationFixture;
  /** Publishes a message that the fixture completes. */
  publish(destination: Destination, message: OutboundMessage, signal?: AbortSignal): Promise<void>;
}

/** How long a test may last that waits for a reconnection, in ms. */
export function testMs({ reconnectMs }: DestinationHarness): number {
  return 30_000 + 2 * reconnectMs;
}

/** How publishes ended. */
export class Outcomes {
  /** Bodies of the publishes that resolved, in the order in which they did. */
  readonly delivered: string[] = [];
  /** What the others rejected with. */
  readonly failures: unknown[] = [];

  /** Notes how one publish ends, and passes that on. */
  async note(body: string, published: Promise<void>): Promise<void> {
    try {
      await published;
      this.delivered.push(body);
    } catch (error) {
      this.failures.push(error);
      throw error;
    }
  }

  /** The failures that are no `PublishError`: none may be. */
  get strays(): readonly unknown[] {
    return this.failures.filter((error) => !(error instanceof PublishError));
  }
}

/**
 * Waits until all of these have arrived, whatever else did: a publish that rejected may have arrived too.
 *
 * @param bodies texts of bodies
 */
export async function haveArrived(fixture: DestinationFixture, bodies: readonly string[]): Promise<void> {
  let count = bodies.length;
  for (;;) {
    const arrived = (await fixture.arrived(count)).map(({ body }) => body.toString());
    const seen = new Set(arrived);
    const missing = bodies.filter((body) => !seen.has(body)).length;
    if (missing === 0) return;
    count = arrived.length + missing;
  }
}
