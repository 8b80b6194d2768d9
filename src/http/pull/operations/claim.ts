import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { ClaimedRows } from "../../../core/delivery/pull.ts";
import * as schema from "../../../model/described.ts";
import type { PulledRow } from "../../../ports/pullStore.ts";
import { JSON_TYPE, send } from "../../exchange.ts";
import * as answer from "../../openapi/answers.ts";
import { leaseMs, number, type PullTools } from "../operation.ts";

export const claim = ({ operation, settings, waiters }: PullTools, source: string) =>
  operation("pull_claim", source, {
    summary: "Claim messages",
    fields: {
      max: number({ from: 1, to: 1000, fallback: 10 }, "Most messages."),
      leaseMs: leaseMs(settings.leaseMs),
      waitMs: number({ from: 0, to: 60_000, fallback: 0 }, "Longest wait for a message, in ms; 0 answers at once."),
    },
    example: { max: 10, waitMs: 20_000 },
    answers: [
      answer.json(200, "The messages, or none when the wait ended without one.", CLAIMED, {
        claimToken: null,
        leaseMs: settings.leaseMs,
        messages: [],
      }),
    ],
    async work(request, res, isAdmitted) {
      const gone = new AbortController();
      const forget = whenGone(res.req.socket, () => gone.abort());
      const claimed = await waiters.claim(source, { ...request, isAdmitted }, gone.signal);
      forget();
      sendClaim(res, claimed, request.leaseMs);
    },
  });

const CLAIMED = schema.named(
  "Claimed",
  schema.object({
    claimToken: schema.nullable("string", { format: "uuid", description: "Null without messages." }),
    leaseMs: { type: "integer" },
    messages: schema.list(
      schema.object({
        id: { ...schema.UUID, description: "The `id` of the inbox row." },
        aggregateId: schema.TEXT_OR_NULL,
        eventType: schema.TEXT_OR_NULL,
        idempotencyKey: schema.TEXT,
        correlationId: schema.TEXT_OR_NULL,
        attempt: { ...schema.integer("How often the message was claimed, including this claim."), minimum: 1 },
        createdAt: schema.TIME_OR_NULL,
        headers: { type: "object", additionalProperties: schema.TEXT, description: "The received headers." },
        payload: { description: "The stored document byte for byte; when it is not JSON, a string that holds it." },
      }),
      "Oldest first.",
    ),
  }),
);

/**
 * The body of a claim's answer. It is assembled as text: parsed and printed again, a payload would lose what JavaScript
 * cannot hold (`12345678901234567890`, `1.0`, the order and repetition of keys).
 *
 * @param claimed null when no message is available
 * @param leaseMs the lease of the claim
 */
function sendClaim(res: ServerResponse, claimed: ClaimedRows | null, leaseMs: number): void {
  const token = JSON.stringify(claimed?.token ?? null);
  const messages = (claimed?.rows ?? []).map(message).join(",");
  send(res, 200, JSON_TYPE, `{"claimToken":${token},"leaseMs":${leaseMs},"messages":[${messages}]}`);
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

const WAITING = new WeakMap<Socket, Set<() => void>>();

/**
 * Calls back once when the client has ended the connection, or its half of it: a client that can send nothing more
 * cannot acknowledge its messages. Not the response's "close": a response queued behind others on its connection never
 * emits it.
 *
 * @returns cancels the callback
 */
function whenGone(socket: Socket, callback: () => void): () => void {
  let waiting = WAITING.get(socket);
  if (waiting === undefined) {
    const all = new Set<() => void>();
    waiting = all;
    WAITING.set(socket, all);
    // One listener for each connection, however many requests wait on it.
    const callAll = (): void => {
      for (const each of all) each();
      all.clear();
    };
    socket.once("end", callAll).once("close", callAll);
  }
  if (socket.destroyed || socket.readableEnded) callback();
  else waiting.add(callback);
  return () => waiting.delete(callback);
}
