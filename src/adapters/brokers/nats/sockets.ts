import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { Socket } from "node:net";
import type { ConnectionOptions, NatsConnection } from "nats";
import { NatsConnectionImpl, setTransportFactory } from "nats/lib/nats-base-client/internal_mod.js";
import { NodeTransport, nodeResolveHost } from "nats/lib/src/node_transport.js";

/** The TCP connections of one attempt to connect. */
class Sockets {
  readonly #open = new Set<Socket>();
  #destroyed = false;

  add(socket: Socket): void {
    this.#open.add(socket);
    // A socket that is destroyed before it connects would connect anyway: wait a turn.
    if (this.#destroyed) setImmediate(() => socket.destroy());
  }

  destroy(): void {
    this.#destroyed = true;
    for (const socket of this.#open) socket.destroy();
  }
}

/** The client keeps unknown options and passes them to its transport. */
type TrackedOptions = ConnectionOptions & { readonly sockets: Sockets };

const CHANNEL = "net.client.socket";

/** The client's own transport; reports the socket that it opens. */
class TrackedTransport extends NodeTransport {
  override connect(server: Parameters<NodeTransport["connect"]>[0], options: TrackedOptions): Promise<void> {
    const onSocket = (message: unknown) => options.sockets.add((message as { readonly socket: Socket }).socket);
    // Opened synchronously: no other socket can interfere.
    subscribe(CHANNEL, onSocket);
    try {
      return super.connect(server, options);
    } finally {
      unsubscribe(CHANNEL, onSocket);
    }
  }
}

const TRANSPORT = { factory: () => new TrackedTransport(), dnsResolveFn: nodeResolveHost };

/**
 * Connects like the client's `connect`, with sockets that can be destroyed from outside. The client cannot cancel an
 * attempt, and leaks the socket of a server that accepts it and never sends its greeting. An asynchronous context could
 * also identify the socket, but makes Node track every promise of the process: while a server keeps an attempt waiting,
 * each delivery to any destination took a tenth more CPU, and a third more at first.
 *
 * @returns the connection, and a function that destroys the sockets of the attempt, later ones included
 */
export function connectTracked(options: ConnectionOptions): {
  readonly outcome: Promise<NatsConnection>;
  readonly destroy: () => void;
} {
  const sockets = new Sockets();
  setTransportFactory(TRANSPORT);
  const tracked: TrackedOptions = { ...options, sockets };
  return { outcome: NatsConnectionImpl.connect(tracked), destroy: () => sockets.destroy() };
}
