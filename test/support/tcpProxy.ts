import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** `open` forwards; `cut` breaks every connection, new ones too; `held` keeps all of them open and lets nothing through, no byte and no end. */
export type ProxyMode = "open" | "cut" | "held";

/** A TCP proxy that can break or hang whatever runs through it. */
export interface TcpProxy {
  readonly port: number;
  /** What happens to the connections there are, and to those that come. From `held` back to `open` the held bytes go on. */
  setMode(mode: ProxyMode): void;
  close(): Promise<void>;
}

interface Pair {
  readonly near: Socket;
  readonly far: Socket;
}

/**
 * Starts a proxy on 127.0.0.1.
 *
 * @param target where the connections lead to
 */
export async function startTcpProxy(target: { readonly host: string; readonly port: number }): Promise<TcpProxy> {
  const pairs = new Set<Pair>();
  let mode: ProxyMode = "open";

  const end = (pair: Pair) => {
    pairs.delete(pair);
    pair.near.destroy();
    pair.far.destroy();
  };
  const apply = (pair: Pair) => {
    const { near, far } = pair;
    if (mode === "cut") {
      near.resetAndDestroy();
      far.destroy();
    } else if (mode === "held") {
      near.unpipe(far).pause();
      far.unpipe(near).pause();
    } else if (near.closed || far.closed) {
      // One side ended while it was held: the other one hears of it now.
      end(pair);
    } else {
      near.pipe(far);
      far.pipe(near);
    }
  };
  const server = createServer((near) => {
    const pair = { near, far: connect(target.port, target.host) };
    for (const socket of [pair.near, pair.far])
      socket
        .setNoDelay(true)
        .on("error", () => {})
        .on("close", () => {
          if (mode !== "held") end(pair);
        });
    pairs.add(pair);
    apply(pair);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    setMode(next) {
      if (next === mode) return;
      mode = next;
      for (const pair of [...pairs]) apply(pair);
    },
    async close() {
      const closed = once(server, "close");
      server.close();
      for (const { near, far } of [...pairs]) {
        near.destroy();
        far.destroy();
      }
      await closed;
    },
  };
}
