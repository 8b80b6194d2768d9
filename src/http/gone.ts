import type { Socket } from "node:net";

const WAITING = new WeakMap<Socket, Set<() => void>>();

/**
 * Calls back once when the other side of a connection has ended it, or has ended its own half: a client that can send nothing more cannot
 * acknowledge what it is given. Not the response's "close": one that waits behind others on its connection never emits it.
 *
 * @returns what takes the callback back
 */
export function whenGone(socket: Socket, callback: () => void): () => void {
  let waiting = WAITING.get(socket);
  if (waiting === undefined) {
    const all = new Set<() => void>();
    waiting = all;
    WAITING.set(socket, all);
    // One listener for each connection, however many requests wait on it.
    const callAll = (): void => {
      for (const each of all) each();
      all.clear();
    };
    socket.once("end", callAll).once("close", callAll);
  }
  if (socket.destroyed || socket.readableEnded) callback();
  else waiting.add(callback);
  return () => waiting.delete(callback);
}
