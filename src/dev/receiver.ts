import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { escapeControls } from "../model/text.ts";

/** The receiver of `svc dev`. */
export interface Receiver {
  readonly url: string;
  stop(): Promise<void>;
}

/**
 * Starts an HTTP receiver on 127.0.0.1 that accepts and prints every delivery.
 *
 * @param preferredPort taken when it is free, else any other
 * @param print called with one line per delivery
 */
export async function startReceiver(preferredPort: number, print: (line: string) => void): Promise<Receiver> {
  const server = createServer((req, res) => {
    void readText(req).then(
      (body) => {
        print(deliveryLine(req, body));
        res.writeHead(204).end();
      },
      () => res.destroy(),
    );
  });
  await listen(server, preferredPort).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EADDRINUSE") throw error;
    return listen(server, 0);
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function listen(server: Server, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", () => {
      server.off("error", reject);
      resolve();
    });
  });
}

async function readText(req: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of req) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString("utf8");
}

const LONGEST_BODY = 400;

function deliveryLine({ method, url, headers }: IncomingMessage, body: string): string {
  const shown = body.length > LONGEST_BODY ? `${body.slice(0, LONGEST_BODY)}... (${body.length} characters)` : body;
  return `delivered  ${method} ${url}  message ${String(headers["x-message-id"])}\n           ${escapeControls(shown)}`;
}
