import { randomUUID } from "node:crypto";
import { PublishError } from "../../../model/errors.ts";
import type { MessageId } from "../../../model/rows.ts";
import { parsedJson } from "../../../model/text.ts";
import type { Destination, OutboundMessage } from "../../../ports/destination.ts";
import { type Channel, HttpPublish, isSuccess } from "./delivery.ts";
import { httpError, statusCode } from "./errors.ts";
import type { HttpBatch } from "./kind.ts";

/**
 * Collects publishes that run at the same time into requests (`destinations.<name>.batch`). Each publish still ends by
 * itself: with the request, or by its own entry of a 207 answer. As a key has one delivery at a time, no request has
 * two rows of a key.
 */
export class Batches implements Pick<Destination, "publish"> {
  readonly #settings: HttpBatch;
  readonly #channel: Channel;
  readonly #open = new Map<string | null, OpenBatch>();

  /** @param channel reads 207 answers */
  constructor(settings: HttpBatch, channel: Channel) {
    this.#settings = settings;
    this.#channel = channel;
  }

  publish(message: OutboundMessage, signal: AbortSignal): Promise<void> {
    const text = oneLine(message.body);
    if (text === undefined) {
      const reason = "the body is not JSON, as a batch needs: leave batch out, or transform it";
      return Promise.reject(httpError("message_invalid", reason, { isPermanent: true }));
    }
    return new Promise((resolve, reject) => {
      const onEnd = (error: unknown) => (error === undefined ? resolve() : reject(error));
      this.#add(new Member(message, text, signal, onEnd));
    });
  }

  /** Sends what waits. */
  flush(): void {
    for (const address of [...this.#open.keys()]) this.#close(address);
  }

  #add(member: Member): void {
    const { maxMessages, maxBytes, maxWaitMs } = this.#settings;
    const { address } = member.message;
    if ((this.#open.get(address)?.bytes ?? 0) + member.bytes > maxBytes) this.#close(address);
    const batch = this.#open.get(address) ?? {
      members: [],
      bytes: BRACKET_BYTES,
      timer: setTimeout(() => this.#close(address), maxWaitMs),
    };
    this.#open.set(address, batch);
    batch.members.push(member);
    batch.bytes += member.bytes;
    if (batch.members.length >= maxMessages || batch.bytes >= maxBytes) this.#close(address);
  }

  #close(address: string | null): void {
    const batch = this.#open.get(address);
    if (batch === undefined) return;
    clearTimeout(batch.timer);
    this.#open.delete(address);
    const members = batch.members.filter((member) => !member.hasEnded);
    if (members.length > 0) void this.#send(members, address);
  }

  /** A request that is refused for what it holds is halved: one bad message must not fail, or end, its neighbours. */
  async #send(members: readonly Member[], address: string | null): Promise<void> {
    const controller = new AbortController();
    for (const member of members)
      member.onAbort = () => {
        if (members.every(({ hasEnded }) => hasEnded)) controller.abort(member.signal.reason);
      };
    try {
      const answer = await HttpPublish.run(this.#channel, this.#requestOf(members, address), controller.signal);
      const results = answer === undefined ? undefined : resultsOf(answer, members.length, this.#channel.name);
      for (const [index, member] of members.entries()) this.#settle(member, results?.[index]);
    } catch (error) {
      const left = members.filter(({ hasEnded }) => !hasEnded);
      if (left.length > 1 && isOfContent(error)) {
        const half = Math.ceil(left.length / 2);
        await Promise.all([left.slice(0, half), left.slice(half)].map((part) => this.#send(part, address)));
      } else for (const member of left) member.end(error);
    }
  }

  #settle(member: Member, result: ItemResult | undefined): void {
    const { name, deadStatuses, secrets } = this.#channel;
    if (result === undefined || isSuccess(result.status, this.#channel)) {
      member.end(undefined);
      return;
    }
    const why = result.error === undefined ? "" : `: ${secrets.mask(result.error, true)}`;
    const message = `${name} was answered ${result.status} for this message of a batch${why}`;
    const about = { status: String(result.status), isPermanent: deadStatuses.has(result.status) };
    member.end(httpError(statusCode(result.status), message, about));
  }

  #requestOf(members: readonly Member[], address: string | null): OutboundMessage {
    const { format } = this.#settings;
    const texts = members.map(({ text }) => text);
    const [first] = members as readonly [Member, ...Member[]];
    return {
      ...first.message,
      // Its contents differ from attempt to attempt, and so must the id by which a receiver recognizes a repetition.
      id: randomUUID() as MessageId,
      address,
      body: format === "ndjson" ? `${texts.join("\n")}\n` : `[${texts.join(",")}]`,
      headers: sharedHeaders(members, format),
    };
  }
}

/** The bracket before the first item of an array. */
const BRACKET_BYTES = 1;

/** Whether a receiver refused a request for what it holds: it is bad, too large or, by `deadStatuses`, dead. */
function isOfContent(error: unknown): boolean {
  return error instanceof PublishError && (error.isPermanent || CONTENT_STATUSES.has(error.status ?? ""));
}

const CONTENT_STATUSES: ReadonlySet<string> = new Set(["400", "413", "422"]);

interface OpenBatch {
  readonly members: Member[];
  bytes: number;
  readonly timer: NodeJS.Timeout;
}

class Member {
  readonly message: OutboundMessage;
  readonly text: string;
  readonly bytes: number;
  readonly signal: AbortSignal;
  onAbort: () => void = () => {};
  hasEnded = false;
  readonly #onEnd: (error: unknown) => void;
  readonly #listener = () => {
    this.end(this.signal.reason);
    this.onAbort();
  };

  /** @param onEnd called once, as {@link end} */
  constructor(message: OutboundMessage, text: string, signal: AbortSignal, onEnd: (error: unknown) => void) {
    this.message = message;
    this.text = text;
    // With the comma, line break or last bracket behind it.
    this.bytes = Buffer.byteLength(text) + 1;
    this.signal = signal;
    this.#onEnd = onEnd;
    signal.addEventListener("abort", this.#listener, { once: true });
  }

  /** @param error undefined for a success */
  end(error: unknown): void {
    if (this.hasEnded) return;
    this.hasEnded = true;
    this.signal.removeEventListener("abort", this.#listener);
    this.#onEnd(error);
  }
}

/** Headers that every message has with the same value. */
function sharedHeaders(members: readonly Member[], format: HttpBatch["format"]): Record<string, string> {
  const [first, ...others] = members.map(({ message }) => message.headers);
  const shared = Object.entries(first ?? {}).filter(
    ([name, value]) => !OF_ONE_MESSAGE.has(name.toLowerCase()) && others.every((headers) => headers[name] === value),
  );
  const areEvents = members.every(({ message }) =>
    Object.entries(message.headers).some(
      ([name, value]) => name.toLowerCase() === "content-type" && value.startsWith(EVENT),
    ),
  );
  const json = areEvents ? "application/cloudevents-batch+json; charset=utf-8" : "application/json";
  return { ...Object.fromEntries(shared), "content-type": format === "ndjson" ? "application/x-ndjson" : json };
}

const OF_ONE_MESSAGE: ReadonlySet<string> = new Set(["content-type", "x-message-id", "x-delivery-id"]);
const EVENT = "application/cloudevents+json";

/** JSON text on one line: line breaks are in no string of JSON. @returns undefined for other text */
function oneLine(body: string): string | undefined {
  return parsedJson(body) === undefined ? undefined : body.replace(/[\r\n]+/g, " ").trim();
}

interface ItemResult {
  readonly status: number;
  readonly error: string | undefined;
}

/**
 * Reads a 207 answer: an array, or `results` or `items` with one, that has an object with `status` and maybe `error`
 * for each message in the order of the request. An inbox of this service answers `items`, each with a `body`.
 *
 * @throws PublishError `bad_response` for another one: what became of the messages is not known
 */
function resultsOf(text: string, count: number, name: string): readonly ItemResult[] {
  const parsed = parsedJson(text);
  const { results: ofResults, items } = Object(parsed) as { results?: unknown; items?: unknown };
  const list = Array.isArray(parsed) ? parsed : (ofResults ?? items);
  const results = Array.isArray(list) ? list.map(itemResult) : [];
  if (results.length === count && results.every((result) => result !== undefined)) return results;
  throw httpError("bad_response", `${name} was answered 207 without a status for each of the ${count} messages`);
}

function itemResult(item: unknown): ItemResult | undefined {
  const { status, body, error = Object(body).error } = Object(item) as Record<"status" | "body" | "error", unknown>;
  if (typeof status !== "number" || !Number.isInteger(status) || status < 100 || status > 599) return undefined;
  return { status, error: typeof error === "string" ? error.slice(0, LONGEST_ERROR) : undefined };
}

const LONGEST_ERROR = 2048;
