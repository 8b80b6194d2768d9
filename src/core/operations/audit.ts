import { errorText } from "../../model/errors.ts";
import type { NewAuditEntry, OperationsStore } from "../../ports/operationsStore.ts";
import type { Log } from "../../ports/runtime.ts";
import type { Redact } from "../redaction/redact.ts";

interface AuditOptions {
  readonly store: Pick<OperationsStore, "addAudit">;
  readonly redact: Redact;
  readonly log: Log;
}

/** Notes who did what. */
export interface Audit {
  /** Never rejects: an entry that cannot be stored is logged, and what was done stays done. */
  add(entry: NewAuditEntry): Promise<void>;
}

export class AuditLog implements Audit {
  readonly #options: AuditOptions;

  constructor(options: AuditOptions) {
    this.#options = options;
  }

  async add({ actor, action, target, detail }: NewAuditEntry): Promise<void> {
    const { store, redact, log } = this.#options;
    const entry = {
      actor: redact(actor),
      action,
      target: target === null ? null : redact(target),
      detail: detail === null ? null : redact(detail),
    };
    try {
      await store.addAudit(entry);
    } catch (error) {
      log.warn({ ...entry, reason: errorText(error) }, "the audit log cannot be written: this line is the only note");
    }
  }
}
