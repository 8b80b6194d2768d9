import { claimRequest, extendRequest } from "./pullSchemas.ts";
import { type Answer, bodyAnswers, json, jsonContent, responses, STORAGE_FAILED, unauthorized } from "./responses.ts";
import { ref, type SchemaName } from "./schemas.ts";
import type { Security } from "./security.ts";
import type { ServedPull } from "./served.ts";
import type { Operation, Schema } from "./types.ts";

/**
 * The pull operations of one source by the last segment of their path (design, "Pull rows").
 *
 * @param source its name, and the name as a part of operation ids
 * @param common what every route of their port may answer
 */
export function pullOperations(
  { name: source, id }: { readonly name: string; readonly id: string },
  pull: ServedPull,
  access: Security,
  common: readonly Answer[],
): Readonly<Record<"claim" | "ack" | "nack" | "extend", Operation>> {
  const operation = (
    name: string,
    summary: string,
    body: { readonly schema: Schema; readonly example: object; readonly required: boolean },
    answers: readonly Answer[],
  ): Operation => ({
    operationId: `pull_${name}_${id}`,
    tags: ["pull"],
    summary: `${summary} of the source ${source}`,
    description: "docs/pull.md tells how to write a client.",
    parameters: access.parameters,
    requestBody: {
      required: body.required,
      description: "A JSON object.",
      content: jsonContent(body.schema, { example: { value: body.example } }),
    },
    responses: responses([...answers, ...refusals(pull), ...common]),
    security: access.security,
  });
  const { leaseMs } = pull;
  const token = { claimToken: TOKEN };
  return {
    claim: operation(
      "claim",
      "Claim messages",
      { schema: claimRequest(leaseMs), example: { max: 10, waitMs: 20_000 }, required: false },
      [
        json(200, "The messages, or none when the wait was over.", ref("Claimed"), {
          claimToken: null,
          leaseMs,
          messages: [],
        }),
      ],
    ),
    ack: operation(
      "ack",
      "Acknowledge claimed messages",
      { schema: ref("AckRequest"), example: token, required: true },
      onClaim("The messages are done.", "Acknowledged", "NothingAcknowledged", {
        acknowledged: [MESSAGE_ID],
        lost: [],
      }),
    ),
    nack: operation(
      "nack",
      "Give claimed messages back",
      { schema: ref("NackRequest"), example: { ...token, delayMs: 5000, error: "the shop is closed" }, required: true },
      onClaim("The messages come again, or are dead.", "GivenBack", "NothingGivenBack", {
        retried: [MESSAGE_ID],
        dead: [],
        released: [],
        lost: [],
      }),
    ),
    extend: operation(
      "extend",
      "Hold claimed messages for longer",
      { schema: extendRequest(leaseMs), example: { ...token, leaseMs: 60_000 }, required: true },
      onClaim("The leases are extended.", "Extended", "NothingExtended", { extended: [MESSAGE_ID], lost: [] }),
    ),
  };
}

const TOKEN = "0d0b9a6e-54b5-4c27-9a3b-7d8f6f0f2b11";
const MESSAGE_ID = "0198b2f4-7c1e-7000-8000-1c5a9f0d2e43";

/** 200, and 409 with the same lists when nothing is held under the token. */
function onClaim(description: string, some: SchemaName, nothing: SchemaName, example: object): readonly Answer[] {
  const none = Object.fromEntries(Object.keys(example).map((name) => [name, []]));
  return [
    json(200, description, ref(some), example),
    json(409, "None of the messages is held under this token.", ref(nothing), {
      error: "No message is held under this claim token",
      ...none,
    }),
  ];
}

function refusals(pull: ServedPull): readonly Answer[] {
  return [
    json(400, "The body is not a valid request.", ref("InvalidRequest"), {
      error: "Invalid request: max must be a whole number from 1 to 1000",
    }),
    ...(pull.auth === undefined ? [] : [unauthorized("Error", { error: "missing Authorization header" })]),
    ...bodyAnswers,
    STORAGE_FAILED,
  ];
}
