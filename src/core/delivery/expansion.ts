import { groupBy } from "../../model/collections.ts";
import { errorText, isTransformFailure } from "../../model/errors.ts";
import { CONDITION, type MessageId } from "../../model/rows.ts";
import type { Metrics } from "../../ports/metrics.ts";
import type { Log } from "../../ports/runtime.ts";
import type {
  Expansion,
  ExpansionState,
  ListMessage,
  ListStore,
  NewDelivery,
  UnexpandedMessage,
} from "../../ports/store.ts";
import type { Clock } from "../../time/clock.ts";
import type { Redact } from "../redaction/redact.ts";

/** The condition of an entry of a list: `when`. */
export interface Condition {
  /** What a failed evaluation leads to. `Fail`: a delivery whose attempts evaluate it again. `Skip`: a delivery. */
  readonly onError: "Fail" | "Skip" | "Dead";
  /** @throws TransformError if the expression fails; PublishError if it could not be run */
  holds(body: string, message: Omit<UnexpandedMessage, "payload">): Promise<boolean>;
}

export interface ListEntry {
  readonly destination: string;
  /** Null: each message goes there. */
  readonly condition: Condition | null;
}

interface ExpansionOptions {
  readonly store: ListStore;
  /** The list of the route of a topic; undefined without one. */
  readonly listOf: (topic: string) => readonly ListEntry[] | undefined;
  /** False while a replica lives that does not know lists: it would take deliveries for broken rows. */
  readonly mayExpand: () => boolean;
  /** Called when messages have been expanded, or failed to be. */
  readonly onEnd: () => void;
  /** Waits before messages that are left are tried again, in ms. */
  readonly wait: (ms: number) => Promise<void>;
  readonly clock: Pick<Clock, "monotonic">;
  readonly redact: Redact;
  readonly metrics: Metrics;
  readonly log: Log;
}

/**
 * Expands messages that go to several destinations into their deliveries, beside the claims that have found them: an
 * expression that takes long delays only the messages of its own list.
 */
export class MessageExpansion {
  readonly #options: ExpansionOptions;
  /** Messages that are being expanded, by the list of their route. */
  readonly #lists = new Map<readonly ListEntry[], Running>();
  #ended: Promise<void> = Promise.resolve();
  #hasWarned = false;

  constructor(options: ExpansionOptions) {
    this.#options = options;
  }

  get running(): readonly MessageId[] {
    return [...this.#lists.values()].flatMap((ids) => [...ids]);
  }

  /** Whether messages of a topic wait for others of their list, or for replicas that know no lists. */
  readonly stateOf = (topic: string): ExpansionState => {
    const { listOf, mayExpand, clock, log } = this.#options;
    const list = listOf(topic);
    if (list === undefined) return "stuck";
    const isOpen = mayExpand();
    if (!isOpen && !this.#hasWarned) log.warn({}, WAITS);
    this.#hasWarned = !isOpen;
    const running = this.#runningOf(list);
    if (isOpen && running.size < MOST_OF_A_LIST) return "open";
    return isOpen && clock.monotonic() - running.begunAt < STUCK_MS ? "full" : "stuck";
  };

  /** Begins to expand messages. Never rejects. */
  begin(messages: readonly ListMessage[]): void {
    for (const [list, part] of groupBy(messages, ({ topic }) => this.#options.listOf(topic))) {
      if (list === undefined) continue;
      const running = this.#runningOf(list);
      const found = part.filter(({ id }) => !running.has(id));
      if (found.length === 0) continue;
      const before = this.#ended;
      // Without the results, which would add up.
      this.#ended = this.#run(found, list, running).then(() => before);
    }
  }

  #runningOf(list: readonly ListEntry[]): Running {
    const running = this.#lists.get(list) ?? new Running();
    this.#lists.set(list, running);
    return running;
  }

  /** Never rejects. */
  async #run(messages: readonly ListMessage[], list: readonly ListEntry[], running: Running): Promise<void> {
    const { wait, clock, log, onEnd } = this.#options;
    running.begunAt = clock.monotonic();
    for (const { id } of messages) running.add(id);
    try {
      // The others are held by a transaction, or another replica has expanded them.
      if (!(await this.#expand(messages, list))) await wait(REST_MS);
    } catch (error) {
      log.error({ reason: errorText(error) }, "messages could not be expanded, retrying");
      await wait(REST_MS);
    }
    for (const { id } of messages) running.delete(id);
    onEnd();
  }

  async ended(): Promise<void> {
    await this.#ended;
  }

  /** @returns whether all that were read have been expanded, or refused */
  async #expand(messages: readonly ListMessage[], list: readonly ListEntry[]): Promise<boolean> {
    const { store, metrics, log } = this.#options;
    const isConditional = list.some(({ condition }) => condition !== null);
    const ids = messages.map(({ id }) => id);
    const read = isConditional ? await store.messagesToExpand(ids) : [];
    const expansions = isConditional
      ? await Promise.all(read.map((message) => this.#expansionOf(message, list)))
      : ids.map((id) => ({ id, deliveries: list.map(({ destination }) => deliveryTo(destination)), skipped: [] }));
    const { expanded, refused } = await store.expand(expansions);
    metrics.messagesExpanded(expanded);
    for (const { skipped } of expansions) for (const { destination } of skipped) metrics.deliverySkipped(destination);
    for (const { id, reason } of refused) {
      metrics.outboxRowRefused(1);
      log.error(
        { id, reason },
        "the database refuses the deliveries of this message: it stays pending and blocks its key",
      );
    }
    return expanded + refused.length === expansions.length;
  }

  async #expansionOf(message: UnexpandedMessage, list: readonly ListEntry[]): Promise<Expansion> {
    const made = await Promise.all(list.map((entry) => this.#deliveryOf(message, entry)));
    const deliveries = made.filter((delivery) => delivery !== undefined);
    const going = new Set(deliveries.map(({ destination }) => destination));
    const skipped = list.filter(({ destination }) => !going.has(destination));
    return {
      id: message.id,
      deliveries,
      skipped: skipped.map(({ destination }) => ({ destination, reason: `${CONDITION}is false` })),
    };
  }

  async #deliveryOf(message: UnexpandedMessage, entry: ListEntry): Promise<NewDelivery | undefined> {
    const { destination, condition } = entry;
    const { payload } = message;
    // A message without a payload cannot be delivered: each of its deliveries says so.
    if (condition === null || payload === null) return deliveryTo(destination);
    try {
      return (await condition.holds(payload, message)) ? deliveryTo(destination) : undefined;
    } catch (error) {
      if (!isTransformFailure(error)) throw error;
      this.#options.metrics.transformFailure(condition.onError);
      if (condition.onError === "Skip") return deliveryTo(destination);
      const reason = this.#options.redact(`${CONDITION}failed: ${error.message}`);
      return { destination, isDead: condition.onError === "Dead", reason };
    }
  }
}

const deliveryTo = (destination: string): NewDelivery => ({ destination, isDead: false, reason: null });

/** Messages of a list that are being expanded, and when the last ones began; monotonic ms. */
class Running extends Set<MessageId> {
  begunAt = 0;
}

/** More of its messages wait in the database. */
const MOST_OF_A_LIST = 100;
const STUCK_MS = 1000;
const REST_MS = 1000;
const WAITS =
  "messages for several destinations wait: a replica of a version that knows no lists is alive. Stop it; killed ones count for a minute";
