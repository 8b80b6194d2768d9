import { afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import { PublishError, StoppingError } from "../../src/model/errors.ts";
import type { Destination, OutboundMessage } from "../../src/ports/destination.ts";
import { START_TIMEOUT_MS } from "../support/brokers/ready.ts";
import { eventually } from "../support/eventually.ts";
import { type DestinationBench, message } from "./destination/bench.ts";
import { exerciseRefusals } from "./destination/refusals.ts";
import { exerciseTraffic } from "./destination/traffic.ts";

export { message } from "./destination/bench.ts";

/** A message as the receiving side sees it. */
export interface ArrivedMessage {
  readonly body: Buffer;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
}

/** One kind of destination with a receiver of its own. */
export interface DestinationFixture extends AsyncDisposable {
  /** A destination that publishes to the receiver. The fixture closes it in the end. */
  create(): Destination;
  /** A destination that publishes to a server which accepts connections and never says anything. */
  createUnanswered(timeoutMs: number): Destination;
  /** A destination that publishes to a port where nobody listens. A kind without a time limit of its own ignores `timeoutMs`. */
  createUnreachable?(timeoutMs: number): Destination;
  /** A destination that publishes to the receiver and shows `harness.wrongPassword`. */
  createWithWrongCredentials?(): Destination;
  /** Completes a message with what this kind needs (address, routing key). */
  address(message: OutboundMessage): OutboundMessage;
  /** The first `count` messages that arrived since the fixture's start, in that order, those of earlier calls included; waits until they are there. */
  arrived(count: number): Promise<readonly ArrivedMessage[]>;
  stopReceiver(): Promise<void>;
  /** Starts the receiver again, at the same place. */
  startReceiver(): Promise<void>;
}

export interface DestinationHarness {
  readonly name: string;
  /** A fixture with a running receiver. */
  start(): Promise<DestinationFixture>;
  /** Time that a client of this kind may take to connect again after a fault, in ms. */
  readonly reconnectMs: number;
  /** `timeoutMs` for the test of the timeout, when this kind has a lower bound for it. */
  readonly shortestTimeoutMs: number;
  /** The header that carries the id of the message. */
  readonly messageIdHeader: string;
  /** The password that the fixture's `createWithWrongCredentials` shows: it must appear in no error. Left out if the receiver asks for none. */
  readonly wrongPassword?: string;
  /** JSON text larger than the receiver takes. Left out if there is no such limit. */
  readonly oversizedBody?: string;
  /** True if header values may hold any text, false or left out if only ASCII. */
  readonly nonAsciiHeaders?: boolean;
  /** True if the receiver acknowledges nothing: what it had read is lost when it goes away. */
  readonly isUnacknowledged?: boolean;
}

/** The contract of `Destination`, to be kept by every kind. */
export function exerciseDestination(harness: DestinationHarness): void {
  describe(`the destination ${harness.name}`, () => {
    let fixture: DestinationFixture;
    let publish: (destination: Destination, message: OutboundMessage, signal?: AbortSignal) => Promise<void>;

    beforeEach(async () => {
      fixture = await harness.start();
      publish = (destination, message, signal = new AbortController().signal) =>
        destination.publish(fixture.address(message), signal);
    }, START_TIMEOUT_MS);
    afterEach(async () => {
      await fixture[Symbol.asyncDispose]();
    }, START_TIMEOUT_MS);

    test.each([
      ["numbers, key order and white space", '{ "b":1.0,"a":12345678901234567890, "z":[ ] }'],
      ["text of every script", JSON.stringify({ text: "Grüße, 日本語, עברית, 👩‍👩‍👧, \u0001" })],
      ["a megabyte", JSON.stringify({ text: "é".repeat(500_000) })],
    ])("delivers %s byte for byte", async (_what, body) => {
      await publish(fixture.create(), message({ body }));
      const [arrived] = await fixture.arrived(1);
      expect(arrived?.body.equals(Buffer.from(body, "utf8"))).toBe(true);
    });

    test("delivers the headers, the id of the message among them", async () => {
      const sent = message({ headers: { "x-tenant": "blue", "content-type": "application/json" } });
      await publish(fixture.create(), sent);
      const [arrived] = await fixture.arrived(1);
      expect(arrived?.headers).toMatchObject({ "x-tenant": "blue", [harness.messageIdHeader]: sent.id });
    });

    test("delivers publishes that run beside each other, each once", async () => {
      const destination = fixture.create();
      const messages = Array.from({ length: 100 }, (_, n) => message({ body: JSON.stringify({ n }) }));
      await Promise.all(messages.map((each) => publish(destination, each)));
      const arrived = await fixture.arrived(100);
      expect(arrived.map(({ body }) => body.toString()).sort()).toEqual(messages.map(({ body }) => body).sort());
    });

    test("rejects with the reason of a signal that was aborted before", async () => {
      const reason = new StoppingError();
      await expect(publish(fixture.create(), message(), AbortSignal.abort(reason))).rejects.toBe(reason);
    });

    test("rejects with the reason of a signal that aborts while the receiver is silent", async () => {
      const controller = new AbortController();
      const reason = new StoppingError();
      const published = publish(fixture.createUnanswered(30_000), message(), controller.signal);
      setImmediate(() => controller.abort(reason));
      await expect(published).rejects.toBe(reason);
    });

    test("fails after its timeout when the receiver is silent", async () => {
      const started = performance.now();
      const published = publish(fixture.createUnanswered(harness.shortestTimeoutMs), message());
      await expect(published).rejects.toBeInstanceOf(PublishError);
      expect(performance.now() - started).toBeGreaterThanOrEqual(harness.shortestTimeoutMs - 5);
    });

    test("close ends a publish that is under way, may be called twice, and lets nothing be published after it", async () => {
      const destination = fixture.createUnanswered(30_000);
      const published = publish(destination, message());
      const rejected = expect(published).rejects.toBeInstanceOf(PublishError);
      await Promise.all([destination.close(), destination.close()]);
      await rejected;
      await destination.close();
      await expect(publish(destination, message())).rejects.toBeInstanceOf(PublishError);
    });

    test("close of a destination that never published returns", async () => {
      await fixture.create().close();
    });

    test("publishes when a receiver comes up that was down at first", async () => {
      await fixture.stopReceiver();
      const destination = fixture.create();
      await expect(publish(destination, message())).rejects.toBeInstanceOf(PublishError);
      await fixture.startReceiver();
      await eventually(() => publish(destination, message()), { timeoutMs: harness.reconnectMs });
    });

    test("fails while the receiver is restarted, and publishes again after it", async () => {
      const destination = fixture.create();
      await publish(destination, message());
      await fixture.stopReceiver();
      await expect(publish(destination, message())).rejects.toBeInstanceOf(PublishError);
      await fixture.startReceiver();
      await eventually(() => publish(destination, message()), { timeoutMs: harness.reconnectMs });
    });

    const bench: DestinationBench = {
      get fixture() {
        return fixture;
      },
      publish: (destination, each, signal) => publish(destination, each, signal),
    };
    exerciseTraffic(harness, bench);
    exerciseRefusals(harness, bench);
  });
}
