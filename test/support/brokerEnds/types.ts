import type { BrokerKind } from "../brokers/servers.ts";
import type { ConfigTree } from "../service.ts";

/** A message on its way to a source. */
export interface SentMessage {
  readonly key: string;
  /** JSON text. */
  readonly body: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A message as it lies in a broker behind a destination. */
export interface ArrivedMessage {
  readonly body: string;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  /** Routing key, record key or subject. */
  readonly key: string;
}

/** What lies before a source and behind a destination of the service in one broker, by the bare client of its kind. */
export interface BrokerEnd extends AsyncDisposable {
  readonly kind: BrokerKind;
  /** An entry of `sources` that reads what `send` sends. */
  readonly source: ConfigTree;
  /** An entry of `destinations` whose messages `arrived` reads. */
  readonly destination: ConfigTree;
  /** An entry of `sources` that reads what comes to this destination. */
  readonly returning: ConfigTree;
  /**
   * Sends messages in this order and resolves when the broker has them. When the broker goes away in between, what it has not confirmed is sent
   * again: messages may repeat, but none comes before an earlier one for the first time.
   */
  send(messages: readonly SentMessage[]): Promise<void>;
  /** Everything that has arrived since the beginning, in the order of the broker (Kafka: of each partition). @param enough ends the reading */
  arrived(enough: (messages: readonly ArrivedMessage[]) => boolean): Promise<readonly ArrivedMessage[]>;
}

/** Cuts messages into chunks that are confirmed together. */
export function inChunks<T>(messages: readonly T[], size = 500): readonly (readonly T[])[] {
  return Array.from({ length: Math.ceil(messages.length / size) }, (_, n) => messages.slice(n * size, (n + 1) * size));
}

const SEND_TIMEOUT_MS = 60_000;
const RETRY_MS = 200;

/** Runs `work` until it passes: a broker may be away for a while. @throws its last error after a minute */
export async function untilItPasses(work: () => Promise<void>): Promise<void> {
  for (const startedAt = performance.now(); ; ) {
    try {
      await work();
      return;
    } catch (error) {
      if (performance.now() - startedAt > SEND_TIMEOUT_MS) throw error;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}
