import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

/** When messages arrive, and how such times are told. */

export interface Arrivals {
  readonly url: string;
  /** Resolves with the time at which the payload came. */
  of(payload: string): Promise<number>;
  close(): void;
}

/** A receiver in this very process, so that one clock measures both ends. */
export async function startArrivals(): Promise<Arrivals> {
  const waiting = new Map<string, (at: number) => void>();
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const body = Buffer.concat(chunks).toString();
      waiting.get(body)?.(performance.now());
      waiting.delete(body);
      response.writeHead(204).end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    of: (payload) => new Promise((resolve) => waiting.set(payload, resolve)),
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

export function p99(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.ceil(sorted.length * 0.99) - 1] ?? Number.NaN;
}

/** For the table. */
export function milliseconds(value: number): string {
  return `${value < 100 ? value.toFixed(1) : Math.round(value).toLocaleString("en-US")} ms`;
}
