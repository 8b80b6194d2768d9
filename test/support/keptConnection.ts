import { connect, type Socket } from "node:net";
import { setTimeout as pause } from "node:timers/promises";

/** How a connection ended. */
export interface KeptConnectionEnd {
  /** Statuses of all answers, in order. */
  readonly statuses: readonly number[];
  /** The last answer said `Connection: close`. */
  readonly announced: boolean;
  /** A request was sent and not answered. */
  readonly lost: boolean;
}

/**
 * Sends requests over one connection, one after the answer to another, until an answer announces that the connection ends, or it just ends. Answers
 * have to have a `Content-Length`.
 *
 * @param request a whole request
 * @param pauseMs between an answer and the next request
 * @param onAnswer called at each answer
 */
export async function useUntilClosed(
  port: number,
  request: string,
  pauseMs: number,
  onAnswer: () => void,
): Promise<KeptConnectionEnd> {
  const socket = connect({ port, host: "127.0.0.1", noDelay: true });
  socket.setEncoding("latin1");
  // A reset is one of the ends it may come to.
  socket.on("error", () => {});
  const statuses: number[] = [];
  try {
    for (;;) {
      if (socket.destroyed || socket.readableEnded) return { statuses, announced: false, lost: false };
      socket.write(request);
      const answer = await answerOf(socket);
      if (answer === undefined) return { statuses, announced: false, lost: true };
      statuses.push(answer.status);
      onAnswer();
      if (answer.isLast) return { statuses, announced: true, lost: false };
      // A pause of nothing would still be a turn of the event loop, in which the end of the connection could be seen.
      if (pauseMs > 0) await pause(pauseMs);
    }
  } finally {
    socket.destroy();
  }
}

/** The next answer; undefined when the connection ends before it is whole. */
function answerOf(socket: Socket): Promise<{ readonly status: number; readonly isLast: boolean } | undefined> {
  return new Promise((resolve) => {
    let text = "";
    const settle = (answer: { readonly status: number; readonly isLast: boolean } | undefined): void => {
      socket.off("data", onData).off("end", onEnd).off("close", onEnd);
      resolve(answer);
    };
    const onEnd = (): void => settle(undefined);
    const onData = (more: string): void => {
      text += more;
      const [head = "", body] = text.split("\r\n\r\n", 2);
      const length = Number(/^content-length: (\d+)$/im.exec(head)?.[1] ?? 0);
      if (body === undefined || body.length < length) return;
      settle({ status: Number(head.slice("HTTP/1.1 ".length, 12)), isLast: /^connection: close$/im.test(head) });
    };
    socket.on("data", onData).once("end", onEnd).once("close", onEnd);
  });
}
