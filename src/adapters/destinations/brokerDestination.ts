import { PublishError } from "../../model/errors.ts";
import type { Destination, OutboundMessage } from "../../ports/destination.ts";
import { InFlight, type PendingPublish, type PublishBounds } from "./pendingPublish.ts";

interface Publisher<P extends PendingPublish> {
  /** Timeout of one publish, connection included, in ms. */
  readonly timeoutMs: number;
  /** @throws PublishError when the broker cannot carry the message */
  prepare(message: OutboundMessage, bounds: PublishBounds): P;
  /** Sends a publish as soon as possible and settles it. Does not throw. */
  send(pending: P): void;
  /** The error of the publishes that the close ends, and of later ones. */
  closedText(verb: "was" | "is"): string;
  /** Ends the connections. All publishes are settled before. */
  close(): Promise<void>;
}

/** A destination on a broker: each publish ends by the broker's answer, its timeout, its signal or the close. */
export function brokerDestination<P extends PendingPublish>(publisher: Publisher<P>): Destination {
  const { timeoutMs } = publisher;
  const inFlight = new InFlight();
  let closed: Promise<void> | undefined;

  const closedError = (verb: "was" | "is") => new PublishError("closed", publisher.closedText(verb));
  const close = async (): Promise<void> => {
    inFlight.failAll(closedError("was"));
    await publisher.close();
  };

  return {
    async publish(message, signal) {
      signal.throwIfAborted();
      if (closed !== undefined) throw closedError("is");
      const pending = publisher.prepare(message, { inFlight, signal, timeoutMs });
      inFlight.add(pending);
      publisher.send(pending);
      return pending.outcome;
    },
    close() {
      closed ??= close();
      return closed;
    },
  };
}
