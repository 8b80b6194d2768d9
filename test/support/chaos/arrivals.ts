import { setTimeout as sleep } from "node:timers/promises";
import { connect } from "nats";
import { type NatsAddress, unique } from "../brokers/servers.ts";
import type { History } from "../history.ts";
import { seeded } from "../random.ts";
import type { Receiver } from "../receiver.ts";
import type { ConfigTree } from "../service.ts";
import { messageAt } from "./lists.ts";
import { POISON_PREFIX, UNWANTED } from "./poison.ts";

/** The header in which each process says its name to whom it delivers. */
export const REPLICA_HEADER = "x-replica";

/** A receiver is not perfect either: it refuses some, and breaks off some connections after it has taken the message. */
const REFUSED = 0.01;
const UNANSWERED = 0.003;
const SLOWEST_ANSWER_MS = 20;
/** Some answers take much longer, so that later messages of the key wait behind in the process. */
const SLOW = 0.03;
const SLOW_ANSWER_MS = 400;

/** Makes an HTTP receiver write down what it takes. */
export function recordRequests(receiver: Receiver, history: History, seed: number, outage: { isOn: boolean }): void {
  const random = seeded(seed);
  receiver.answer = ({ body, headers, url }, response) => {
    // Half an hour of requests would not fit into the memory.
    receiver.requests.length = 0;
    const id = idOf(body);
    if (id === undefined || id.startsWith(POISON_PREFIX)) {
      response.writeHead(id?.startsWith(UNWANTED) === true ? 500 : 200).end();
      return;
    }
    const drawn = random();
    if (drawn < REFUSED || outage.isOn) {
      response.writeHead(503).end();
      return;
    }
    const answered = drawn >= REFUSED + UNANSWERED;
    history.received(messageAt(id, url), String(headers[REPLICA_HEADER]), { answered });
    if (!answered) response.socket?.destroy();
    else
      setTimeout(() => response.writeHead(200).end(), random() < SLOW ? SLOW_ANSWER_MS : random() * SLOWEST_ANSWER_MS);
  };
}

/** A stream behind a destination, and what reads it into a history. */
export interface StreamReader {
  /** An entry of `destinations`. */
  readonly destination: ConfigTree;
  /** Reads to the end of the stream, and ends. Call it when nobody publishes any more and the server runs. */
  finish(): Promise<void>;
  /** Ends at once. Safe to call after `finish`. */
  close(): Promise<void>;
}

/** De-duplication by the stream itself would hide from us what comes twice: this is the shortest it can be. */
export const DUPLICATE_WINDOW_MS = 100;
const STREAM_BYTES = 256 * 1024 * 1024;
const NO_MESSAGE = 10037;
const LOOK_MS = 20;

/** Makes a stream and reads it message by message, whatever happens to the server in between. */
export async function readStream(server: NatsAddress, history: History): Promise<StreamReader> {
  const stream = unique("faults");
  const connection = await connect({ servers: server.url, maxReconnectAttempts: -1, reconnectTimeWait: 100 });
  const manager = await connection.jetstreamManager({ timeout: 2000 });
  await manager.streams.add({
    name: stream,
    subjects: [`${stream}.>`],
    duplicate_window: DUPLICATE_WINDOW_MS * 1_000_000,
    max_bytes: STREAM_BYTES,
  });

  let next = 1;
  let finishing = false;
  let closed = false;
  const readNext = async (): Promise<"message" | "end" | "no answer"> => {
    try {
      const { header, data, time } = await manager.streams.getMessage(stream, { seq: next });
      const id = idOf(data);
      if (id !== undefined) history.received(id, header.get(REPLICA_HEADER), { at: time.getTime() });
      next += 1;
      return "message";
    } catch (error) {
      const code = (error as { readonly api_error?: { readonly err_code?: number } }).api_error?.err_code;
      return code === NO_MESSAGE ? "end" : "no answer";
    }
  };
  const reading = (async () => {
    while (!closed) {
      const mayEnd = finishing;
      const read = await readNext();
      if (read === "end" && mayEnd) return;
      if (read !== "message") await sleep(LOOK_MS);
    }
  })();
  return {
    destination: { servers: server.url, subject: `${stream}.{{ topic }}` },
    async finish() {
      finishing = true;
      await reading;
    },
    async close() {
      closed = true;
      await connection.close();
      await reading;
    },
  };
}

/** Of what a sender or an application of this suite has made; undefined for what is not a message at all. */
function idOf(body: Uint8Array): string | undefined {
  try {
    return (JSON.parse(Buffer.from(body).toString("utf8")) as { id?: string }).id;
  } catch {
    return undefined;
  }
}
