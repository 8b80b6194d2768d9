import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { POISON_PREFIX } from "./poison.ts";

/** What a client does to the data port of one replica. `share` in (0, 1] says how much of it. */
export interface Attack {
  readonly port: number;
  readonly source: string;
  readonly share: number;
  readonly lengthMs: number;
}

const MEGABYTE = Buffer.alloc(1024 * 1024, "x");

/** Bodies in chunks of one byte each, on four connections: 1.2 to 6 MB on the wire. */
export async function oneByteChunks({ port, source, share, lengthMs }: Attack): Promise<void> {
  const head = `POST /inbox/${source} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`;
  const some = Buffer.from("1\r\nx\r\n".repeat(10_000));
  const times = Math.ceil(100 * share);
  await Promise.all(
    [1, 2, 3, 4].map(() =>
      onConnection(port, async (socket) => {
        socket.write(head);
        for (let n = 0; n < times && !socket.destroyed; n += 1) await written(socket, some);
        await sleep(lengthMs / 4);
      }),
    ),
  );
}

/** Bodies of a megabyte whose last bytes never come, on 100 to 400 connections. */
export async function unfinishedBodies({ port, source, share, lengthMs }: Attack): Promise<void> {
  const head = `POST /inbox/${source} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${MEGABYTE.length}\r\n\r\n`;
  await Promise.all(
    Array.from({ length: Math.round(100 + 300 * share) }, () =>
      onConnection(port, async (socket) => {
        socket.write(head);
        socket.write(MEGABYTE.subarray(10));
        await sleep(lengthMs);
      }),
    ),
  );
}

/** What is not HTTP, what has headers without end, and good requests with garbage behind them. */
export async function garbage({ port, source, share }: Attack): Promise<void> {
  const good = requestOf(source, `${POISON_PREFIX}before-garbage`);
  const pieces = [
    Buffer.from(Array.from({ length: 500 }, (_, n) => Math.floor(256 * share * (n + 1)) % 256)),
    Buffer.from("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "latin1"),
    `GET / HTTP/1.1\r\n${"x-a: b\r\n".repeat(20_000)}`,
    `${good}${good}garbage\r\n\r\n`,
    `POST /inbox/${source} HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}`,
  ];
  for (let n = 0; n < 4; n += 1) {
    await Promise.all(
      pieces.map((piece) =>
        onConnection(port, async (socket) => {
          socket.write(piece);
          await sleep(200);
        }),
      ),
    );
  }
}

/** Thousands of requests on one connection, one behind the other, without waiting for an answer. */
export async function pipelined({ port, source, share, lengthMs }: Attack): Promise<void> {
  const some = requestOf(source, `${POISON_PREFIX}pipelined`).repeat(100);
  const until = performance.now() + lengthMs;
  await onConnection(port, async (socket) => {
    socket.resume();
    for (let n = 0; n < 200 * share && performance.now() < until && !socket.destroyed; n += 1)
      await written(socket, some);
    await sleep(500);
  });
}

/**
 * Senders that close their side behind a request, as they may, and wait for the answer.
 *
 * @returns how many of them got none within `patienceMs`
 */
export async function halfClosed({ port, source, share }: Attack, patienceMs = 10_000): Promise<number> {
  const answers = await Promise.all(
    Array.from({ length: Math.round(1 + 9 * share) }, async (_, n) => {
      let answer = "";
      await onConnection(port, async (socket) => {
        socket.on("data", (chunk: Buffer) => {
          answer += chunk.toString("latin1");
        });
        const ended = new Promise<void>((resolve) => socket.once("close", () => resolve()));
        socket.end(requestOf(source, `${POISON_PREFIX}half-closed-${n}`));
        const waiting = new AbortController();
        await Promise.race([ended, sleep(patienceMs, undefined, { signal: waiting.signal }).catch(() => {})]);
        waiting.abort();
      });
      return answer;
    }),
  );
  return answers.filter((answer) => !answer.startsWith("HTTP/1.1 ")).length;
}

function requestOf(source: string, id: string): string {
  const body = JSON.stringify({ id, key: id, type: "http" });
  return `POST /inbox/${source} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
}

async function onConnection(port: number, use: (socket: Socket) => Promise<void>): Promise<void> {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => {}); // The replica may refuse, break off or be killed: all of that is allowed here.
  socket.on("close", () => socket.destroy());
  try {
    await use(socket);
  } finally {
    socket.destroy();
  }
}

/** Resolves when there is room for more, or nobody takes any. */
async function written(socket: Socket, bytes: Buffer | string): Promise<void> {
  if (socket.write(bytes)) return;
  await new Promise<void>((resolve) => {
    const done = () => {
      clearTimeout(timer);
      socket.off("drain", done).off("close", done);
      resolve();
    };
    const timer = setTimeout(done, LONGEST_WAIT_MS);
    socket.once("drain", done).once("close", done);
  });
}

const LONGEST_WAIT_MS = 2000;
