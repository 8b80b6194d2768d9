import type { Destination } from "../../../ports/destination.ts";
import { InFlight } from "../../brokers/inFlight.ts";
import { type NatsConnectionConfig, NatsDialer } from "../../brokers/nats/link.ts";
import type { BrokerTools } from "../../brokers/tools.ts";
import { CoreSession } from "./core.ts";
import { natsError, noConnection } from "./errors.ts";
import { JetStreamSession } from "./jetStream.ts";
import { Publication } from "./publication.ts";
import { SharedSession } from "./sharedSession.ts";
import { configuredInternalToken } from "./subject.ts";

/** The keys of a subject-broker destination that the adapter needs; the subject is rendered before it. */
export interface NatsDestinationOptions extends NatsConnectionConfig {
  /** The template of the subject, for what it says literally. */
  readonly subject: string;
  readonly subjectFrom?: string | undefined;
  /** `true`: the stream acknowledges each message; `false`: the server has read it, and nobody acknowledges it. */
  readonly jetStream: boolean;
  /** ms for the whole publish, connecting included. */
  readonly timeoutMs: number;
}

/** A server that takes longer than this to let a client in is passed over for the next one. */
const MAX_CONNECT_MS = 5000;

/**
 * A subject-broker destination (spec, "Subject-broker destination"). All publishes share one connection, and many may be under way on it.
 *
 * @throws Error when `servers` cannot be read
 */
export function createNatsDestination(options: NatsDestinationOptions, tools: BrokerTools): Destination {
  const { jetStream, timeoutMs } = options;
  const dialer = new NatsDialer(options, "svc destination", Math.min(timeoutMs, MAX_CONNECT_MS), tools.random);
  const shared = new SharedSession(dialer, tools, (link) =>
    jetStream ? new JetStreamSession(link) : new CoreSession(link),
  );
  const internalToken = configuredInternalToken(options.subject, options.subjectFrom);
  const inFlight = new InFlight();
  let closed: Promise<void> | undefined;

  const close = async (): Promise<void> => {
    inFlight.failAll(natsError("closed", "the destination was closed"));
    await shared.close();
  };

  return {
    kind: "nats",
    async publish(message, signal) {
      signal.throwIfAborted();
      if (closed !== undefined) throw natsError("closed", "the destination is closed");
      const publication = new Publication(message, { inFlight, signal, timeoutMs }, internalToken);
      inFlight.add(publication);
      const session = shared.current;
      if (session !== undefined) {
        session.send(publication);
      } else {
        shared.get().then(
          (opened) => {
            // A publish whose time is over while it waited must not be sent any more.
            if (!publication.settled) opened.send(publication);
          },
          (error) => publication.fail(noConnection(error)),
        );
      }
      return publication.outcome;
    },
    close() {
      closed ??= close();
      return closed;
    },
  };
}
