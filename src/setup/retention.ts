import type { Config } from "../config/types.ts";
import { Retention, type RetentionOptions } from "../core/operations/retention.ts";
import type { RetentionPolicy } from "../ports/finishedRows.ts";
import type { Store } from "../ports/store.ts";
import { sleep } from "../time/wait.ts";

interface RetentionTools extends Pick<RetentionOptions, "clock" | "metrics" | "log"> {
  readonly config: Config;
  readonly store: Pick<Store, "retention">;
}

/** The retention of each table whose policy is not `DISABLED`. */
export function retentions({ config, store, ...tools }: RetentionTools, stopping: AbortSignal) {
  return (["outbox", "inbox"] as const).flatMap((table) => {
    const policy = policyOf(config, table);
    if (policy === undefined) return [];
    const { batchSize, cleanupInterval } = config.retention[table];
    const options = { ...tools, store: store.retention, policy, batchSize, stopping, wait: sleep };
    return [{ table, retention: new Retention(options), cleanupIntervalMs: cleanupInterval }];
  });
}

function policyOf({ retention }: Config, table: RetentionPolicy["table"]): RetentionPolicy | undefined {
  const { policy, maxAge } = retention[table];
  const { maxCount } = retention.outbox;
  // The check of the configuration guarantees what a policy requires.
  if (policy === "AGE" && maxAge !== undefined) return { table, kind: "AGE", maxAgeMs: maxAge };
  if (policy === "COUNT" && maxCount !== undefined) return { table: "outbox", kind: "COUNT", maxCount };
  return undefined;
}
