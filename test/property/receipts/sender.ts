import { Readable } from "node:stream";
import { Pool } from "undici";
import type { Message } from "./expected.ts";

export interface Answer {
  readonly status: number;
  readonly contentType: string | undefined;
  readonly text: string;
}

/** Sends messages over a few connections, many at a time on each. */
export class Sender {
  readonly #pool: Pool;

  constructor(port: number) {
    this.#pool = new Pool(`http://127.0.0.1:${port}`, { connections: 4, pipelining: 25 });
  }

  /**
   * @returns the answer
   * @throws the connection's error when there is none
   */
  async send({ source, headers, body, isChunked }: Message): Promise<Answer> {
    const answer = await this.#pool.request({
      method: "POST",
      path: `/inbox/${source}`,
      headers,
      body: isChunked
        ? Readable.from([body.subarray(0, 7), body.subarray(7)].filter(({ length }) => length > 0))
        : body,
      // Only what may be repeated is sent before the answers to what went ahead of it; the client repeats nothing by itself.
      idempotent: true,
    });
    const contentType = answer.headers["content-type"];
    return { status: answer.statusCode, contentType: String(contentType), text: await answer.body.text() };
  }

  close(): Promise<void> {
    return this.#pool.destroy();
  }
}
