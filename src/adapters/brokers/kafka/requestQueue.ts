import { kafkajsModule } from "./internals.ts";

interface RequestQueue {
  readonly pending: readonly unknown[];
  scheduleCheckPendingRequests(): void;
}

/**
 * Keeps kafkajs 2.2.4 from setting a timer with a negative delay after each answer when nothing waits, which newer versions of Node
 * report on stderr (TimeoutNegativeWarning) and which does nothing anyway. A version that is built differently stays as it is.
 */
export function quietRequestQueue(): void {
  const queue = kafkajsModule<{ readonly prototype?: Partial<RequestQueue> }>("network/requestQueue")?.prototype;
  if (typeof queue?.scheduleCheckPendingRequests !== "function") return;
  const schedule = queue.scheduleCheckPendingRequests;
  queue.scheduleCheckPendingRequests = function (this: RequestQueue) {
    if (this.pending.length > 0) schedule.call(this);
  };
}
