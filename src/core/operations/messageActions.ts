import type { MessageId } from "../../model/rows.ts";
import type { Changed } from "../../ports/finishedRows.ts";
import type { MessageStore, StoredMessage } from "../../ports/messageStore.ts";
import type { NewAuditEntry } from "../../ports/operationsStore.ts";
import type { ParkedStore } from "../../ports/store.ts";
import type { Redact } from "../redaction/redact.ts";
import type { Audit } from "./audit.ts";
import type { Replay } from "./replay.ts";

interface MessageActionsOptions {
  readonly store: { readonly parked: ParkedStore; readonly messages: Pick<MessageStore, "get"> };
  readonly replay: Pick<Replay, "run">;
  /** Called after a change that made a row due, or freed its key. */
  readonly onFreed: () => void;
  readonly audit: Audit;
  readonly redact: Redact;
}

export type ActionResult =
  | { readonly kind: "changed" }
  | { readonly kind: "missing" }
  /** Its state, or a trigger of its owner, does not allow it. */
  | { readonly kind: "refused"; readonly reason: string };

/** What operators do with one message. A row that a poller has claimed is left alone. */
export class MessageActions {
  readonly #options: MessageActionsOptions;

  constructor(options: MessageActionsOptions) {
    this.#options = options;
  }

  /** Makes a row that waits for its retry, or is parked, due now. @throws StoreError */
  async retry(id: MessageId, by: string): Promise<ActionResult> {
    const done = await this.#options.store.parked.retry([id], by);
    return await this.#result(done, { actor: by, action: "retry", target: id, detail: null });
  }

  /** Makes a pending row dead: the next row of its key is free. @throws StoreError */
  async discard(id: MessageId, by: string, reason: string): Promise<ActionResult> {
    const { store, redact } = this.#options;
    const done = await store.parked.discard([id], redact(by), redact(reason));
    return await this.#result(done, { actor: by, action: "discard", target: id, detail: reason });
  }

  /** Delivers a sent or dead row again, or receives a dead inbox row again. @throws InterruptedError, StoreError */
  async replay(
    id: MessageId,
    by: string,
    toDestination: string | undefined,
    signal: AbortSignal,
  ): Promise<ActionResult> {
    const stored = await this.#options.store.messages.get(id, false);
    const isReceived = stored.outbox === undefined && stored.inbox?.state === "dead";
    if (isReceived && toDestination !== undefined) return { kind: "refused", reason: NO_DESTINATION_YET };
    const request = isReceived ? { inbox: true, ids: [id] } : { ids: [id], toDestination };
    const { moved, refusal } = await this.#options.replay.run(request, by, signal);
    return moved > 0 ? { kind: "changed" } : await this.#refusal(id, "replay", refusal);
  }

  async #result({ changed, refusal }: Changed, entry: ActionEntry): Promise<ActionResult> {
    if (changed === 0) return await this.#refusal(entry.target, entry.action, refusal);
    this.#options.onFreed();
    await this.#options.audit.add(entry);
    return { kind: "changed" };
  }

  async #refusal(id: MessageId, action: keyof typeof ALLOWED, refusal: string | undefined): Promise<ActionResult> {
    if (refusal !== undefined) {
      return { kind: "refused", reason: `the row is unchanged: ${this.#options.redact(refusal)}` };
    }
    const stored = await this.#options.store.messages.get(id, false);
    if (stored.inbox === undefined && stored.outbox === undefined) return { kind: "missing" };
    return { kind: "refused", reason: `${stateText(stored)}; ${ALLOWED[action]}` };
  }
}

const NO_DESTINATION_YET =
  "the row died in the inbox: replay it without toDestination, its topic decides the destination";

interface ActionEntry extends NewAuditEntry {
  readonly action: "retry" | "discard";
  readonly target: MessageId;
}

const ALLOWED = {
  retry: "only a row that waits for its retry, or is parked, can be retried: replay a finished one",
  discard: "only a pending row can be discarded",
  replay: "only a sent or dead row can be replayed",
} as const;

function stateText({ outbox }: StoredMessage): string {
  if (outbox === undefined) return "the message is not in the outbox";
  return outbox.state === "processing" ? "the row is in delivery" : `the row is ${outbox.state}`;
}
