import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { Transform, type TransformCallback } from "node:stream";

/** `open` forwards; `cut` breaks every connection, new ones too; `held` keeps all of them open and lets nothing through, no byte and no end. */
export type ProxyMode = "open" | "cut" | "held";

/** A TCP proxy that can break, hang or slow down whatever runs through it. */
export interface TcpProxy extends AsyncDisposable {
  readonly port: number;
  /** What happens to present and later connections. From `held` back to `open` the held bytes are sent. */
  setMode(mode: ProxyMode): void;
  /** What happens to later connections; present ones keep their mode. */
  setModeOfNew(mode: ProxyMode): void;
  /** How long each chunk of bytes waits before it is sent, one after another, in either direction; 0 (the default): not at all. */
  setDelay(ms: number): void;
  close(): Promise<void>;
}

interface Pair {
  mode: ProxyMode;
  readonly near: Socket;
  readonly far: Socket;
  readonly there: Slowness;
  readonly back: Slowness;
}

/** Passes bytes on, each chunk after a delay. */
class Slowness extends Transform {
  readonly #delayMs: () => number;
  #timer: NodeJS.Timeout | undefined;

  constructor(delayMs: () => number) {
    super();
    this.#delayMs = delayMs;
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    const delayMs = this.#delayMs();
    if (delayMs === 0) done(null, chunk);
    else this.#timer = setTimeout(() => done(null, chunk), delayMs);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    clearTimeout(this.#timer);
    done(error);
  }
}

/**
 * Starts a proxy.
 *
 * @param target the server to which the connections lead
 * @param address of this machine at which it listens
 */
export async function startTcpProxy(
  target: { readonly host: string; readonly port: number },
  address = "127.0.0.1",
): Promise<TcpProxy> {
  const pairs = new Set<Pair>();
  let mode: ProxyMode = "open";
  let delayMs = 0;

  const end = (pair: Pair) => {
    pairs.delete(pair);
    for (const stream of [pair.near, pair.far, pair.there, pair.back]) stream.destroy();
  };
  const apply = (pair: Pair) => {
    const { near, far, there, back, mode } = pair;
    if (mode === "cut") {
      near.resetAndDestroy();
      far.destroy();
    } else if (mode === "held") {
      for (const [from, to] of [
        [near, there],
        [there, far],
        [far, back],
        [back, near],
      ] as const) {
        from.unpipe(to).pause();
      }
    } else if (near.closed || far.closed) {
      // One side ended while it was held: the other one hears of it now.
      end(pair);
    } else {
      near.pipe(there).pipe(far);
      far.pipe(back).pipe(near);
    }
  };
  const server = createServer((near) => {
    const [there, back] = [new Slowness(() => delayMs), new Slowness(() => delayMs)];
    const pair: Pair = { mode, near, far: connect(target.port, target.host), there, back };
    for (const socket of [pair.near, pair.far])
      socket
        .setNoDelay(true)
        .on("error", () => {})
        .on("close", () => {
          if (pair.mode !== "held") end(pair);
        });
    pairs.add(pair);
    apply(pair);
  });
  server.listen(0, address);
  await once(server, "listening");
  const close = async () => {
    const closed = once(server, "close");
    server.close();
    for (const pair of [...pairs]) end(pair);
    await closed;
  };
  return {
    port: (server.address() as AddressInfo).port,
    setMode(next) {
      mode = next;
      for (const pair of [...pairs].filter((each) => each.mode !== next)) {
        pair.mode = next;
        apply(pair);
      }
    },
    setModeOfNew(next) {
      mode = next;
    },
    setDelay(ms) {
      delayMs = ms;
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}
