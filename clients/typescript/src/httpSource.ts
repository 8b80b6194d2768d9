import { parsed } from "./sqlSource.ts";
import type { PulledMessage, PullSource } from "./worker.ts";

export interface HttpSourceOptions {
  /** The pull routes, such as `http://svc:8080/pull`. */
  readonly url: string;
  /** A source with `consumption: pull`. */
  readonly source: string;
  /** The credentials of `inbox.pull.auth`, such as `{ authorization: "Bearer …" }`. */
  readonly headers?: Readonly<Record<string, string>>;
  /**
   * Longest wait of the server for a message, in ms, at most 60,000; default 5,000. A stop waits as long, and 10 s more for a
   * server that does not answer.
   */
  readonly waitMs?: number;
}

/**
 * Messages over HTTP, for every database. The service decides when a message is dead (`inbox.pull.maxAttempts`): a
 * `DeadMessage` counts as an attempt and has the usual delay. A message that is given back counts as an attempt too.
 */
export function httpSource({ url, source, headers = {}, waitMs = 5000 }: HttpSourceOptions): PullSource<undefined> {
  const base = `${url.replace(/\/$/, "")}/${encodeURIComponent(source)}`;
  const post = async <T>(operation: string, body: object, timeoutMs = ANSWER_MS): Promise<T> => {
    const answer = await fetch(`${base}/${operation}`, {
      method: "POST",
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(timeoutMs),
    });
    const text = await answer.text();
    // 409: none of the messages is held any more; the body says so.
    if (!answer.ok && answer.status !== 409)
      throw new Error(`${operation} of ${source}: ${answer.status} ${text.slice(0, 200)}`);
    return JSON.parse(withTexts(text)) as T;
  };
  return {
    // A claim whose client hangs up may take messages all the same: a stop waits for it.
    async claim(max, leaseMs) {
      const { claimToken, messages } = await post<Claimed>("claim", { max, leaseMs, waitMs }, waitMs + ANSWER_MS);
      return { token: claimToken ?? "", messages: messages.map(messageOf) };
    },
    async renew({ token }, ids, leaseMs) {
      return new Set((await post<{ extended: string[] }>("extend", { claimToken: token, ids, leaseMs })).extended);
    },
    async handled({ token }, id, handle) {
      await handle(undefined);
      const { acknowledged } = await post<{ acknowledged: string[] }>("ack", { claimToken: token, ids: [id] });
      return acknowledged.includes(id);
    },
    async retry({ token }, id, delayMs, error) {
      // What the service takes.
      const ms = Math.min(Math.max(Math.round(delayMs), 0), 86_400_000);
      const body = { claimToken: token, ids: [id], delayMs: ms, error };
      const { dead, lost } = await post<{ dead: string[]; lost: string[] }>("nack", body);
      return dead.includes(id) ? "dead" : lost.includes(id) ? "lost" : "retry";
    },
    async release({ token }, ids) {
      await post("nack", { claimToken: token, ids });
    },
  };
}

/** Longest wait for an answer, after the server's own wait for messages. */
const ANSWER_MS = 10_000;

type Received = PulledMessage & { readonly payload: string };
interface Claimed {
  readonly claimToken: string | null;
  readonly messages: readonly Received[];
}

const messageOf = (each: Received): PulledMessage => ({ ...each, json: each.payload, payload: parsed(each.payload) });

/** An answer with each payload as its text: its numbers keep their digits, and a deep one harms no other message. */
function withTexts(answer: string): string {
  let [written, depth, end, start] = ["", 0, 0, 0];
  for (const { 0: token, index } of answer.matchAll(TOKEN)) {
    const kind = token.at(-1) as string;
    depth += Number("[{".includes(kind)) - Number("]}".includes(kind));
    if (start > 0 && ((kind === "," && depth === 3) || (kind === "}" && depth === 2))) {
      written += answer.slice(end, start) + JSON.stringify(answer.slice(start, index).trim());
      [end, start] = [index, 0];
    } else if (kind === ":" && depth === 3) start = index + token.length;
  }
  return written + answer.slice(end);
}
const TOKEN = /"payload"\s*:|"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{},]/gs;
