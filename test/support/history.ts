/** A message that was sent, and what became of it. Times are ms of the history's clock. */
export interface MessageHistory {
  readonly id: string;
  /** Undefined for what came without having been sent. */
  readonly key: string | undefined;
  readonly sentAt: number | undefined;
  readonly acknowledgedAt: number | undefined;
  /** In the order in which they came. */
  readonly arrivals: readonly Arrival[];
}

/** One delivery that the receiver has taken. */
export interface Arrival {
  readonly at: number;
  /** The replica that brought it, if the test distinguishes replicas. */
  readonly from: string;
  /** False if the receiver broke off instead of answering: the replica cannot know that the message came. */
  readonly answered: boolean;
}

/**
 * What was sent, acknowledged and received in one run, and what must hold of it whatever breaks: nothing acknowledged is lost, the messages of a key come in
 * the order in which they were sent, and a message comes twice only if that is allowed.
 *
 * Order is that of first arrivals. A repetition may come after later messages of its key: a replica that is suspended with a request on its way out sends it
 * when it resumes, and by then other replicas have continued with the key. Whether the repetition was allowed is the question, and {@link mayRepeat} its
 * answer.
 */
export class History {
  readonly #now: () => number;
  readonly #messages = new Map<string, Message>();
  readonly #firstArrivals: Message[] = [];
  #acknowledged = 0;
  #missing = 0;

  /** @param now the clock of the times in the history, by default the monotonic one */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /**
   * A message is about to be sent for the first time.
   *
   * @param position in the order of its key; default: after all that were sent before
   */
  sent(id: string, key: string, position = this.#messages.size + 1): void {
    const message = this.#message(id);
    message.key = key;
    message.sentAt = this.#now();
    message.position = position;
  }

  /**
   * Sets the position of a message in the order of its key, if its sender learns that only afterwards. A message that was sent with `Number.NaN` for its
   * position and never gets another one is left out of the order.
   */
  ordered(id: string, position: number): void {
    this.#message(id).position = position;
  }

  /** The service has answered that it has the message, as a new one or as a duplicate. */
  acknowledged(id: string): void {
    const message = this.#message(id);
    if (message.acknowledgedAt !== undefined) return;
    message.acknowledgedAt = this.#now();
    this.#acknowledged += 1;
    if (message.arrivals.length === 0) this.#missing += 1;
  }

  /**
   * The receiver has taken a message. What it refused has not been received.
   *
   * @param from the replica that delivered it, if the test distinguishes replicas
   * @param details default: it came now, and is answered
   */
  received(id: string, from = "", details: Partial<Omit<Arrival, "from">> = {}): void {
    const message = this.#message(id);
    if (message.arrivals.length === 0) {
      this.#firstArrivals.push(message);
      if (message.acknowledgedAt !== undefined) this.#missing -= 1;
    }
    message.arrivals.push({ from, at: details.at ?? this.#now(), answered: details.answered ?? true });
  }

  /** These were in flight when something broke: nobody can know whether they had arrived. */
  mayRepeat(ids: Iterable<string>): void {
    for (const id of ids) this.#message(id).mayRepeat = true;
  }

  get sentCount(): number {
    return this.#messages.size;
  }

  get acknowledgedCount(): number {
    return this.#acknowledged;
  }

  get acknowledgedIds(): readonly string[] {
    return [...this.#messages.values()]
      .filter(({ acknowledgedAt }) => acknowledgedAt !== undefined)
      .map(({ id }) => id);
  }

  /** How many acknowledged messages have not come. */
  get missingCount(): number {
    return this.#missing;
  }

  /** From the acknowledgement of a message to its first arrival, at most, in ms. */
  get longestMs(): number {
    return this.#firstArrivals.reduce(
      (longest, { acknowledgedAt, arrivals }) =>
        Math.max(longest, (arrivals[0]?.at ?? 0) - (acknowledgedAt ?? Number.POSITIVE_INFINITY)),
      0,
    );
  }

  /** What is known of a message. */
  of(id: string): MessageHistory | undefined {
    return this.#messages.get(id);
  }

  /** Messages that came more than once, with who brought them, in the order of their first arrival. */
  get repeated(): readonly {
    readonly id: string;
    readonly key: string | undefined;
    readonly from: readonly string[];
  }[] {
    return this.#firstArrivals
      .filter(({ arrivals }) => arrivals.length > 1)
      .map(({ id, key, arrivals }) => ({ id, key, from: arrivals.map(({ from }) => from) }));
  }

  /** Acknowledged messages that have not come. */
  get missing(): readonly string[] {
    if (this.#missing === 0) return [];
    return [...this.#messages.values()]
      .filter(({ acknowledgedAt, arrivals }) => acknowledgedAt !== undefined && arrivals.length === 0)
      .map(({ id }) => id);
  }

  /** Messages that came without having been sent. */
  get unknown(): readonly string[] {
    return this.#firstArrivals.filter(({ key }) => key === undefined).map(({ id }) => id);
  }

  /** Everything that is wrong, a line each; empty when the run was right. Call it when all deliveries have ended. */
  violations(): readonly string[] {
    return [
      ...listed("acknowledged but never delivered", this.missing),
      ...listed("delivered but never sent", this.unknown),
      ...listed(
        "delivered more than once without having been in flight at a fault",
        this.repeated
          .filter(({ id }) => this.#messages.get(id)?.mayRepeat !== true)
          .map(({ id, from }) => `${id} (${from.join(", ")})`),
      ),
      ...listed(
        "delivered out of order",
        this.outOfOrder.map(({ key, before, late }) => `key ${key}: ${late} came after ${before}`),
      ),
    ];
  }

  /** Messages that came for the first time after one of their key that was sent later. */
  get outOfOrder(): readonly { readonly key: string; readonly late: string; readonly before: string }[] {
    const last = new Map<string, Message>();
    const found: { key: string; late: string; before: string }[] = [];
    for (const message of this.#firstArrivals) {
      const { key, id, position } = message;
      if (key === undefined || Number.isNaN(position)) continue;
      const before = last.get(key);
      if (before !== undefined && before.position > position) found.push({ key, late: id, before: before.id });
      else last.set(key, message);
    }
    return found;
  }

  #message(id: string): Message {
    let message = this.#messages.get(id);
    if (message === undefined) {
      message = {
        id,
        key: undefined,
        position: -1,
        sentAt: undefined,
        acknowledgedAt: undefined,
        arrivals: [],
        mayRepeat: false,
      };
      this.#messages.set(id, message);
    }
    return message;
  }
}

interface Message extends MessageHistory {
  key: string | undefined;
  position: number;
  sentAt: number | undefined;
  acknowledgedAt: number | undefined;
  readonly arrivals: Arrival[];
  mayRepeat: boolean;
}

const SHOWN = 10;

function listed(what: string, items: readonly string[]): readonly string[] {
  if (items.length === 0) return [];
  const rest = items.length > SHOWN ? ` and ${items.length - SHOWN} more` : "";
  return [`${items.length} ${what}: ${items.slice(0, SHOWN).join("; ")}${rest}`];
}
