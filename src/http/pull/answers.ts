import type { ClaimedRows } from "../../core/delivery/pull.ts";
import type { PulledRow } from "../../ports/pullStore.ts";

/**
 * The body of a claim's answer. It is put together as text: parsed and printed again, a payload would lose what JavaScript cannot hold
 * (`12345678901234567890`, `1.0`, the order and repetition of keys).
 *
 * @param claimed null when no message is available
 * @param leaseMs the lease that was asked for
 */
export function claimAnswer(claimed: ClaimedRows | null, leaseMs: number): string {
  const token = JSON.stringify(claimed?.token ?? null);
  const messages = (claimed?.rows ?? []).map(message).join(",");
  return `{"claimToken":${token},"leaseMs":${leaseMs},"messages":[${messages}]}`;
}

function message(row: PulledRow): string {
  const { id, aggregateId, eventType, idempotencyKey, correlationId, attempt, createdAt, headers } = row;
  const fields = { id, aggregateId, eventType, idempotencyKey, correlationId, attempt, createdAt, headers };
  const open = JSON.stringify(fields).slice(0, -1);
  return `${open},"payload":${jsonOf(row.payload)}}`;
}

/** The stored text when it is a JSON document, else a JSON string that holds it. */
function jsonOf(payload: string): string {
  try {
    JSON.parse(payload);
    return payload;
  } catch {
    return JSON.stringify(payload);
  }
}
