import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** What receivers do that their neighbours must not feel. */
const ANSWERS = {
  "never answers": () => {},
  "answers after 5 s": (response) => {
    const timer = setTimeout(() => response.end(), 5000);
    response.once("close", () => clearTimeout(timer));
  },
  "answers 200 and drips its body": (response) => {
    response.writeHead(200);
    every(1000, response, () => response.write("."));
  },
  "sends 103 for ever": (response) => {
    every(100, response, () => response.writeEarlyHints({ link: "</style.css>; rel=preload; as=style" }));
  },
  "answers 500 at once": (response) => {
    response.writeHead(500).end("out of order");
  },
} as const satisfies Readonly<Record<string, (response: ServerResponse) => void>>;

export type FaultyAnswer = keyof typeof ANSWERS;
export const FAULTY_ANSWERS = Object.keys(ANSWERS) as readonly FaultyAnswer[];

/** An HTTP receiver that answers every request in the same faulty way and remembers none. */
export interface FaultyReceiver extends AsyncDisposable {
  readonly port: number;
  close(): Promise<void>;
}

export async function startFaultyReceiver(answer: FaultyAnswer): Promise<FaultyReceiver> {
  const server = createServer((request, response) => {
    request.resume();
    request.once("end", () => ANSWERS[answer](response));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const close = async (): Promise<void> => {
    if (!server.listening) return;
    const closed = once(server, "close");
    server.close();
    server.closeAllConnections();
    await closed;
  };
  return { port: (server.address() as AddressInfo).port, close, [Symbol.asyncDispose]: close };
}

/** Does something at once, and again and again until the response is closed. */
function every(ms: number, response: ServerResponse, action: () => void): void {
  action();
  const timer = setInterval(action, ms);
  response.once("close", () => clearInterval(timer));
}
