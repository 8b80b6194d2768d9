import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { Socket } from "node:net";
import type { ConnectionOptions, NatsConnection } from "nats";
import { NatsConnectionImpl, setTransportFactory } from "nats/lib/nats-base-client/internal_mod.js";
import { NodeTransport, nodeResolveHost } from "nats/lib/src/node_transport.js";

/** The TCP connections that one attempt to connect opens. */
class Sockets {
  readonly #open = new Set<Socket>();
  #destroyed = false;

  add(socket: Socket): void {
    this.#open.add(socket);
    // It is not connected yet; a socket that is destroyed before it connects would come to life again.
    if (this.#destroyed) setImmediate(() => socket.destroy());
  }

  destroy(): void {
    this.#destroyed = true;
    for (const socket of this.#open) socket.destroy();
  }
}

/** The client keeps options that it does not know, and hands them to its transport. */
type TrackedOptions = ConnectionOptions & { readonly sockets: Sockets };

const CHANNEL = "net.client.socket";

/** The client's own transport; tells of the socket that it makes. */
class TrackedTransport extends NodeTransport {
  override connect(server: Parameters<NodeTransport["connect"]>[0], options: TrackedOptions): Promise<void> {
    const onSocket = (message: unknown) => options.sockets.add((message as { readonly socket: Socket }).socket);
    // Made before the call returns: no other socket comes between.
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
 * Connects as the client's `connect` does, with a transport whose sockets can be destroyed from outside.
 *
 * The client offers no way to give an attempt up, and leaves the socket open when a server accepts it and never sends its greeting: it would stay for
 * as long as the server lives. An asynchronous context would tell too whose socket one is, but while one is in use Node follows every promise of the
 * process: as long as a server lets an attempt wait, every delivery to any destination took a tenth more of the processor, and a third more at the start.
 *
 * @returns the connection, and the function that destroys the sockets that the attempt has opened or still opens
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
