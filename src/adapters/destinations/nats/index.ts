import type { Destination } from "../../../ports/destination.ts";
import type { AdapterTools } from "../../../ports/kinds.ts";
import { brokerDestination } from "../../brokers/destination.ts";
import { NatsFault } from "../../brokers/nats/faults.ts";
import { NatsDialer } from "../../brokers/nats/link.ts";
import { SharedConnection } from "../../brokers/sharedConnection.ts";
import { noConnection } from "./errors.ts";
import { configuredInternalToken, PendingMessage } from "./message.ts";
import type { NatsDestinationConfig } from "./schema.ts";
import { CoreSession, JetStreamSession, type Session } from "./session.ts";

/** Timeout of connecting to one server; then the next one is tried. */
const MAX_CONNECT_MS = 5000;

/**
 * A NATS destination (spec, "Subject-broker destination"). All publishes share one connection, many in flight at a
 * time.
 *
 * @throws Error when `servers` is invalid
 */
export function createNatsDestination(config: NatsDestinationConfig, tools: AdapterTools): Destination {
  const { jetStream, timeoutMs } = config;
  const dialer = new NatsDialer(config, "svc destination", Math.min(timeoutMs, MAX_CONNECT_MS), tools.random);
  const shared = new SharedConnection<Session>({
    broker: dialer.servers,
    connect: async (signal) => {
      const link = await dialer.dial(signal);
      return jetStream ? new JetStreamSession(link) : new CoreSession(link);
    },
    onEnd: ({ link }, ended) => void link.ended.then(ended),
    disconnect: ({ link }) => link.close("the destination was closed"),
    tools,
  });
  const internalToken = configuredInternalToken(config.subject, config.subjectFrom);
  return brokerDestination({
    timeoutMs,
    prepare: (message, bounds) => new PendingMessage(message, bounds, internalToken),
    send(pending) {
      const session = shared.current;
      if (session !== undefined) {
        session.send(pending);
        return;
      }
      shared.get().then(
        (opened) => {
          // A publish that timed out while waiting must not be sent.
          if (!pending.settled) opened.send(pending);
        },
        (error) => pending.fail(noConnection(error)),
      );
    },
    closedText: (verb) => `the destination ${verb} closed`,
    close: () => shared.close(new NatsFault("other", "the destination was closed")),
  });
}
