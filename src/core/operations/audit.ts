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

export function createAudit({ store, redact, log }: AuditOptions): Audit {
  const redacted = (text: string | null) => (text === null ? null : redact(text));
  return {
    async add({ actor, action, target, detail }) {
      const entry = { actor: redact(actor), action, target: redacted(target), detail: redacted(detail) };
      await store.addAudit(entry).catch((error: unknown) => {
        log.error(
          { ...entry, reason: errorText(error) },
          "the audit log cannot be written: this line is the only note",
        );
      });
    },
  };
}
