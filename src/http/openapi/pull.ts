import type { Access } from "../credentials.ts";
import {
  type Answer,
  bodyAnswers,
  error,
  json,
  type RouteDescription,
  STORAGE_FAILED,
  unauthorized,
} from "./answers.ts";
import { claimRequest, extendRequest, ref, type SchemaName } from "./schemas.ts";
import type { Schema } from "./types.ts";

const TOKEN = "0d0b9a6e-54b5-4c27-9a3b-7d8f6f0f2b11";
const MESSAGE_ID = "0198b2f4-7c1e-7000-8000-1c5a9f0d2e43";

const INVALID = "Invalid request: max must be a whole number from 1 to 1000";

/**
 * Describes the pull routes of one source.
 *
 * @param leaseMs `inbox.pull.leaseMs`
 */
export function describePull(source: string, leaseMs: number, access: Access | undefined) {
  const operation = (
    summary: string,
    schema: Schema,
    example: object,
    answers: readonly Answer[],
    isOptional = false,
  ): RouteDescription => ({
    summary: `${summary} of the source ${source}`,
    description: "docs/pull.md explains how to write a client.",
    access,
    body: { isOptional, description: "A JSON object.", schema, examples: { example: { value: example } } },
    answers: [
      ...answers,
      error(400, "The body is not a valid request.", "InvalidRequest", INVALID),
      ...unauthorized(access),
      ...bodyAnswers(),
      STORAGE_FAILED,
    ],
  });
  const token = { claimToken: TOKEN };
  const nothing = { claimToken: null, leaseMs, messages: [] };
  return {
    claim: operation(
      "Claim messages",
      claimRequest(leaseMs),
      { max: 10, waitMs: 20_000 },
      [json(200, "The messages, or none when the wait ended without one.", "Claimed", nothing)],
      true,
    ),
    ack: operation(
      "Acknowledge claimed messages",
      ref("AckRequest"),
      token,
      settled("The messages are done.", "Acknowledged", "NothingAcknowledged", { acknowledged: [MESSAGE_ID] }),
    ),
    nack: operation(
      "Give claimed messages back",
      ref("NackRequest"),
      { ...token, delayMs: 5000, error: "the shop is closed" },
      settled("The messages become available again, or are dead.", "GivenBack", "NothingGivenBack", {
        retried: [MESSAGE_ID],
        dead: [],
        released: [],
      }),
    ),
    extend: operation(
      "Hold claimed messages for longer",
      extendRequest(leaseMs),
      { ...token, leaseMs: 60_000 },
      settled("The leases are extended.", "Extended", "NothingExtended", { extended: [MESSAGE_ID] }),
    ),
  };
}

/** 200, and 409 with the same lists when nothing is held under the token. */
function settled(description: string, some: SchemaName, nothing: SchemaName, example: object): readonly Answer[] {
  const lists = { ...example, lost: [] };
  const none = Object.fromEntries(Object.keys(lists).map((name) => [name, []]));
  return [
    json(200, description, some, lists),
    json(409, "None of the messages is held under this token.", nothing, {
      error: "No message is held under this claim token",
      ...none,
    }),
  ];
}
