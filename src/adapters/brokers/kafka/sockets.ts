import { isIP, connect as netConnect, type Socket } from "node:net";
import { TLSSocket, connect as tlsConnect } from "node:tls";
import type { ISocketFactory } from "kafkajs";
import { hostOf } from "./addresses.ts";

const KEEP_ALIVE_MS = 60_000;

/**
 * The connections of one client, so that they can be ended whatever the client is doing: its own `disconnect` waits for answers that may never
 * come, and leaves behind connections that a broker does not close.
 */
export class Sockets {
  readonly #open = new Set<Socket>();
  #closed = false;

  /** Makes a connection; the client calls it. After `cut` it throws, which ends the client's own tries. */
  readonly create: ISocketFactory = ({ host, port, ssl, onConnect }) => {
    if (this.#closed) throw new Error("the client was closed");
    const target = { host: hostOf(host), port };
    const servername = isIP(target.host) === 0 ? { servername: target.host } : {};
    const socket = ssl ? tlsConnect({ ...target, ...servername, ...ssl }, onConnect) : netConnect(target, onConnect);
    this.#open.add(socket);
    return (
      socket
        .setKeepAlive(true, KEEP_ALIVE_MS)
        .setNoDelay(true)
        // An error after the client has let go of the socket must not end the process.
        .on("error", () => {})
        .on("close", () => this.#open.delete(socket))
    );
  };

  /**
   * Ends every connection now, with what is not sent yet: a record in it must not reach the broker after its repetition on another
   * connection. Requests under way fail. No connection can be made afterwards.
   */
  cut(): void {
    this.#closed = true;
    const reason = new Error("the connection was cut");
    for (const socket of [...this.#open]) {
      // A reset takes neither TLS nor what is connecting, nor what has begun to end: libuv then never lets go of the handle.
      if (socket.connecting || socket.writableEnded || socket instanceof TLSSocket) socket.destroy(reason);
      else {
        // The client looks for "error" and "end" and not for "close", and a reset emits only that.
        socket.emit("error", reason);
        socket.resetAndDestroy();
      }
    }
  }
}
