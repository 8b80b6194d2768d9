import { PAUSE_DURATION } from "../../core/destinations/control.ts";
import { LONGEST_REASON } from "../../core/finished/requests.ts";
import { DESTINATION_STATES } from "../../ports/destinationStore.ts";
import { NO_DESTINATION_TABLE } from "../admin/destinations.ts";
import { object } from "./object.ts";
import { BY, WORDS } from "./parkedPaths.ts";
import {
  type Answer,
  bodyAnswers,
  errorAnswer,
  json,
  jsonContent,
  responses,
  STORAGE_FAILED,
  tooLarge,
  unauthorized,
} from "./responses.ts";
import type { Security } from "./security.ts";
import type { ServedAdmin } from "./served.ts";
import type { Operation, Parameter, Schema } from "./types.ts";

const TIME: Schema = { type: ["string", "null"], format: "date-time" };
const COUNT: Schema = { type: ["integer", "null"], minimum: 0 };

const OVERVIEW: Schema = object({
  name: { type: "string" },
  state: { enum: DESTINATION_STATES, description: "A pause hides the other states." },
  pause: {
    anyOf: [
      object({
        by: { type: "string", description: "Who paused it." },
        reason: { type: "string" },
        since: { type: "string", format: "date-time" },
        until: { ...TIME, description: "Null for until it is resumed." },
      }),
      { type: "null" },
    ],
  },
  breaker: {
    anyOf: [
      object({
        openings: { type: "integer", minimum: 0, description: "How often it has opened in a row." },
        reason: { type: ["string", "null"] },
        nextProbeMs: {
          type: "integer",
          minimum: 0,
          description:
            "Of an open one: ms until the next probe. Of a half-open one: ms until the lease of its probe ends.",
        },
      }),
      { type: "null" },
    ],
    description: "Null when it is closed.",
  },
  backlog: { ...COUNT, description: "Rows that wait." },
  oldestAgeMs: { type: ["number", "null"], minimum: 0, description: "Age of the oldest due row." },
  inFlight: { ...COUNT, description: "Rows in processing, in all replicas." },
  rate: {
    anyOf: [
      object({
        perSecond: { type: "number", exclusiveMinimum: 0 },
        taken: { type: "number", minimum: 0, description: "In the last whole second, by all replicas." },
      }),
      { type: "null" },
    ],
    description: "Null without a limit.",
  },
  lastSuccessAt: TIME,
  lastFailureAt: TIME,
  lastError: { type: ["string", "null"] },
});

const EXAMPLE = {
  name: "billing",
  state: "paused",
  pause: {
    by: "ada@ops-1",
    reason: "they migrate",
    since: "2025-01-31T12:00:00.000Z",
    until: "2025-01-31T14:00:00.000Z",
  },
  breaker: null,
  backlog: 812,
  oldestAgeMs: 61200,
  inFlight: 0,
  rate: { perSecond: 50, taken: 0 },
  lastSuccessAt: "2025-01-31T11:59:58.120Z",
  lastFailureAt: null,
  lastError: null,
};

const NAME: Parameter = {
  name: "name",
  in: "path",
  required: true,
  description: "Name of a configured destination.",
  schema: { type: "string" },
};

/** `GET /admin/destinations`. `common`: what every route of its port may answer. */
export function listDestinationsOperation(admin: ServedAdmin, access: Security, common: readonly Answer[]): Operation {
  return {
    operationId: "admin_destinations",
    tags: ["admin"],
    summary: "What is known of the destinations",
    description:
      "Every configured destination: paused, broken or slow, what waits for it, and how its last deliveries ended.",
    parameters: access.parameters,
    responses: responses([
      json(
        200,
        "The destinations, as the configuration has them.",
        object({ destinations: { type: "array", items: OVERVIEW } }),
        {
          destinations: [EXAMPLE],
        },
      ),
      ...refusals(admin),
      ...common,
    ]),
    security: access.security,
  };
}

/** `POST /admin/destinations/{name}/pause` */
export function pauseDestinationOperation(admin: ServedAdmin, access: Security, common: readonly Answer[]): Operation {
  return {
    operationId: "admin_destination_pause",
    tags: ["admin"],
    summary: "Pause a destination",
    description:
      "From now on nothing more is delivered to it, in every replica and across restarts, until it is resumed or the time is over; its rows wait. " +
      "Paused again, the last request counts.",
    parameters: [...(access.parameters ?? []), NAME],
    requestBody: {
      required: true,
      description: `At most ${admin.maxPayloadBytes} bytes.`,
      content: jsonContent(
        {
          type: "object",
          required: ["reason"],
          properties: {
            reason: {
              type: "string",
              minLength: 1,
              maxLength: LONGEST_REASON,
              pattern: WORDS,
              description: "Why, for whoever lists the destinations.",
            },
            for: {
              type: ["string", "null"],
              pattern: PAUSE_DURATION.source,
              description: "How long, such as `30s`, `15m`, `2h` or `1d`; absent for until it is resumed.",
            },
            by: BY,
          },
        },
        { twoHours: { summary: "For two hours", value: { reason: "they migrate", for: "2h", by: "alice" } } },
      ),
    },
    responses: responses([
      json(200, "It is paused.", object({ paused: { const: true } }), { paused: true }),
      ...changeAnswers('Invalid request: "reason" is missing; a text that says why is expected'),
      ...refusals(admin),
      ...bodyAnswers,
      ...common,
    ]),
    security: access.security,
  };
}

/** `POST /admin/destinations/{name}/resume` */
export function resumeDestinationOperation(admin: ServedAdmin, access: Security, common: readonly Answer[]): Operation {
  return {
    operationId: "admin_destination_resume",
    tags: ["admin"],
    summary: "Resume a destination",
    description: "Ends a pause. A body is not needed.",
    parameters: [...(access.parameters ?? []), NAME],
    requestBody: {
      required: false,
      description: `At most ${admin.maxPayloadBytes} bytes.`,
      content: jsonContent(
        { type: "object", properties: { by: BY } },
        { byAlice: { summary: "With who does it", value: { by: "alice" } } },
      ),
    },
    responses: responses([
      json(
        200,
        "It is not paused (any more).",
        object({ resumed: { type: "boolean", description: "False when it was not paused." } }),
        {
          resumed: true,
        },
      ),
      ...changeAnswers("Invalid request: the body is an array; a JSON object is expected"),
      ...refusals(admin),
      ...bodyAnswers,
      ...common,
    ]),
    security: access.security,
  };
}

function changeAnswers(invalid: string): readonly Answer[] {
  return [
    errorAnswer(400, "The body is not a valid request.", "InvalidRequest", invalid),
    errorAnswer(
      404,
      "No such destination is configured.",
      "Error",
      'There is no destination "biling" (there are billing, audit)',
    ),
    errorAnswer(
      501,
      "The table of the destinations is missing, or the service has no rights on it.",
      "Error",
      NO_DESTINATION_TABLE,
    ),
  ];
}

function refusals(admin: ServedAdmin): readonly Answer[] {
  const { description, error } = tooLarge(admin.maxPayloadBytes);
  return [
    ...(admin.auth === undefined ? [] : [unauthorized("Error", { error: "missing Authorization header" })]),
    errorAnswer(413, description, "BodyTooLarge", error),
    STORAGE_FAILED,
  ];
}
