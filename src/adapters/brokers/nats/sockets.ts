import { AsyncLocalStorage } from "node:async_hooks";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { Socket } from "node:net";

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

const attempt = new AsyncLocalStorage<Sockets>();
let attempts = 0;
const CHANNEL = "net.client.socket";

/**
 * Runs an attempt to connect whose sockets can be destroyed from outside.
 *
 * The client offers no way to give an attempt up, and leaves the socket open when a server accepts it and never sends its greeting: it would stay for
 * as long as the server lives. Node tells of every socket made (`net.client.socket`), and the asynchronous context tells whose it is.
 *
 * @param run makes the connection
 * @returns what `run` returns, and the function that destroys the sockets it has opened or still opens
 */
export function withSockets<T>(run: () => Promise<T>): { readonly outcome: Promise<T>; readonly destroy: () => void } {
  const sockets = new Sockets();
  const onSocket = (message: unknown) => {
    if (attempt.getStore() === sockets) sockets.add((message as { readonly socket: Socket }).socket);
  };
  subscribe(CHANNEL, onSocket);
  attempts += 1;
  const outcome = attempt.run(sockets, run).finally(() => {
    unsubscribe(CHANNEL, onSocket);
    attempts -= 1;
    // In use, it makes Node follow every promise of the process, which costs more than an idle service does otherwise.
    if (attempts === 0) attempt.disable();
  });
  return { outcome, destroy: () => sockets.destroy() };
}
