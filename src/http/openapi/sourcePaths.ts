import { CORRELATION_HEADER } from "../../core/receipt/headers.ts";
import { TRANSFORM_UNAVAILABLE } from "../inboxRoutes.ts";
import { messageSchema } from "./messageSchema.ts";
import { object } from "./object.ts";
import {
  type Answer,
  bodyAnswers,
  errorAnswer,
  json,
  jsonContent,
  RETRY_AFTER,
  responses,
  STORAGE_FAILED,
  unauthorized,
  withHeaders,
} from "./responses.ts";
import { ref } from "./schemas.ts";
import type { Security } from "./security.ts";
import type { ServedSource } from "./served.ts";
import type { Operation, Parameter } from "./types.ts";

/**
 * The operation of an HTTP source (spec, "POST <inbox.basePath><path>").
 *
 * @param id the source's name as a part of operation ids
 * @param common what every route of its port may answer
 */
export function receiveOperation(
  source: ServedSource,
  id: string,
  { security, parameters }: Security,
  maxBodyBytes: number,
  common: readonly Answer[],
): Operation {
  return {
    operationId: `receive_${id}`,
    tags: ["inbox"],
    summary: `Hand in a message of the source ${source.name}`,
    description: describe(source),
    parameters: [...parameters, CORRELATION],
    requestBody: {
      required: true,
      description:
        `One JSON document of at most ${maxBodyBytes} bytes; it is read as JSON whatever \`Content-Type\` says. ` +
        "It may be sent with the `Content-Encoding` gzip, deflate or br.",
      content: jsonContent(messageSchema(source), {}),
    },
    responses: responses([...answers(source), ...common]),
    security,
  };
}

function describe(source: ServedSource): string {
  const { idempotencyKeyPath, eventTypePath, aggregateIdPath, consumption, requestsPerMinute } = source;
  const next =
    consumption === "push"
      ? "It is then relayed into the outbox and delivered."
      : "It then waits in the inbox until a pull client claims it.";
  return [
    "A 202 with a `messageId` means that the message is stored, not that a destination has it.",
    next,
    `The idempotency key is the value at \`${idempotencyKeyPath}\`: a second message with the same one is a duplicate.`,
    ...(aggregateIdPath === undefined ? [] : [`Messages with the same value at \`${aggregateIdPath}\` stay in order.`]),
    ...(eventTypePath === undefined ? [] : [`The event type is the value at \`${eventTypePath}\`.`]),
    ...(source.hasFilter ? ["Messages that the source's header filter does not let pass are not stored."] : []),
    ...(source.hasTransform ? ["The source's transform runs before the message is stored."] : []),
    ...(requestsPerMinute === undefined
      ? []
      : [`At most ${requestsPerMinute} requests a minute, of all callers together.`]),
    "A 4xx answer other than 429 stays the same when the same request is repeated; after a 500 or 503 send it again.",
  ].join(" ");
}

const CORRELATION: Parameter = {
  name: CORRELATION_HEADER,
  in: "header",
  required: false,
  description:
    "Stored with the message and handed on with it; a UUID is made when it is absent. One over 255 characters, or with control characters, " +
    "is stored as `sha256:` and the hexadecimal digest of its text.",
  schema: { type: "string" },
};

const CORRELATED = {
  [CORRELATION_HEADER]: {
    description: "The correlation id of the message, as it was sent or as it was made.",
    required: true,
    schema: { type: "string" },
  },
} as const;

/** The answers of the specification's table that this source can give. */
function answers(source: ServedSource): readonly Answer[] {
  const optional: readonly (readonly [given: boolean, answer: Answer])[] = [
    [source.hasFilter, FILTERED],
    [source.auth !== undefined, unauthorized("Error", { error: "missing Authorization header" })],
    [source.hasTransform, TRANSFORM_FAILED],
    [source.hasTransform, TRANSFORM_BUSY],
    [source.requestsPerMinute !== undefined, RATE_LIMITED],
  ];
  return [
    STORED,
    DUPLICATE,
    REFUSED,
    ...bodyAnswers,
    STORAGE_FAILED,
    ...optional.flatMap(([given, answer]) => (given ? [answer] : [])),
  ];
}

const STORED = withHeaders(
  json(202, "A new message, and it is stored.", ref("Stored"), { messageId: "0198b2f4-7c1e-7000-8000-1c5a9f0d2e43" }),
  CORRELATED,
);

const FILTERED = json(202, "The header filter dropped the message; nothing is stored.", ref("Filtered"), {
  status: "filtered",
});

const DUPLICATE = withHeaders(
  json(200, "The source holds a message with this idempotency key already.", ref("Duplicate"), { status: "duplicate" }),
  CORRELATED,
);

const REFUSED = withHeaders(
  json(400, "The body is not JSON, or holds no usable idempotency key.", ref("Error"), { error: "Invalid JSON" }),
  CORRELATED,
);

const TRANSFORM_FAILED = withHeaders(
  json(
    422,
    "The source's transform refused the message; nothing is stored.",
    object({ error: { type: "string", pattern: "^Transform failed: " } }),
    { error: "Transform failed: the expression gave no result" },
  ),
  CORRELATED,
);

const TRANSFORM_BUSY = withHeaders(
  errorAnswer(
    503,
    "Too many messages wait for their transform, or no worker can be started; nothing is stored. Send it again.",
    "TransformUnavailable",
    TRANSFORM_UNAVAILABLE,
  ),
  RETRY_AFTER,
);

const RATE_LIMITED: Answer = withHeaders([429, { description: "Too many requests in this minute." }], RETRY_AFTER);
