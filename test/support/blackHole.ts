import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";

/** A server that accepts connections, reads what comes and never answers: a receiver that hangs. */
export interface BlackHole extends AsyncDisposable {
  readonly port: number;
  /** Connections that their clients have given up. */
  readonly givenUp: number;
  /** Resolves when a client has sent something. */
  readonly reached: Promise<void>;
  close(): Promise<void>;
}

export async function startBlackHole(): Promise<BlackHole> {
  const sockets = new Set<Socket>();
  let givenUp = 0;
  let onReached = () => {};
  const reached = new Promise<void>((resolve) => {
    onReached = resolve;
  });
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("data", onReached);
    socket.on("error", () => {});
    socket.on("close", () => {
      sockets.delete(socket);
      givenUp++;
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const close = async (): Promise<void> => {
    if (!server.listening) return;
    const closed = once(server, "close");
    server.close();
    for (const socket of sockets) socket.destroy();
    await closed;
  };
  return {
    port: (server.address() as AddressInfo).port,
    get givenUp() {
      return givenUp;
    },
    reached,
    close,
    [Symbol.asyncDispose]: close,
  };
}
