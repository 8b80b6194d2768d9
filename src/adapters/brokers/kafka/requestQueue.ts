import { createRequire } from "node:module";

interface RequestQueue {
  readonly pending: readonly unknown[];
  scheduleCheckPendingRequests(): void;
}

/**
 * Keeps kafkajs 2.2.4 from setting a timer with a negative delay after each answer when nothing waits, which newer versions of Node
 * report on stderr (TimeoutNegativeWarning) and which does nothing anyway. A version that is built differently stays as it is.
 */
export function quietRequestQueue(): void {
  const queue = requestQueueClass()?.prototype;
  if (typeof queue?.scheduleCheckPendingRequests !== "function") return;
  const schedule = queue.scheduleCheckPendingRequests;
  queue.scheduleCheckPendingRequests = function (this: RequestQueue) {
    if (this.pending.length > 0) schedule.call(this);
  };
}

function requestQueueClass(): { readonly prototype?: Partial<RequestQueue> } | undefined {
  try {
    return createRequire(import.meta.url)("kafkajs/src/network/requestQueue");
  } catch {
    return undefined;
  }
}
