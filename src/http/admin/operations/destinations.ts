import type { DestinationControl } from "../../../core/destinations/control.ts";
import { knownNames, PAUSE_DURATION, REASON } from "../../../core/operations/syntax.ts";
import { DESTINATION_STATES } from "../../../ports/destinationStore.ts";
import { ERRORS } from "../../exchange.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import * as schema from "../../openapi/schemas.ts";
import { type Admin, CALLER, Refusal } from "../operation.ts";

const { TEXT, TEXT_OR_NULL, TIME, TIME_OR_NULL } = schema;

const PAUSE = schema.object({
  by: [schema.text("Who paused it."), "ada@ops-1"],
  reason: [TEXT, "they migrate"],
  since: [TIME, "2025-01-31T12:00:00.000Z"],
  until: [{ ...TIME_OR_NULL, description: "Null: until it is resumed." }, "2025-01-31T14:00:00.000Z"],
});

const BREAKER = schema.object({
  openings: schema.count("How often it has opened in a row."),
  reason: TEXT_OR_NULL,
  nextProbeMs: schema.count("Open: ms until the next probe. Half-open: ms until the lease of its probe ends."),
});

const RATE = schema.object({
  perSecond: [{ type: "number", exclusiveMinimum: 0 }, 50],
  taken: [{ type: "number", minimum: 0, description: "Deliveries granted in the last whole second, begun or not." }, 0],
});

const RECENT = schema.object({
  sent: [schema.count("Deliveries that succeeded."), 90],
  failed: [schema.count("Failures whose row is tried again or parked."), 2],
  dead: [schema.count("Failures whose row died."), 0],
});

const DESTINATION = schema.object({
  name: [TEXT, "billing"],
  state: [{ enum: DESTINATION_STATES, description: "The first that applies." }, "paused"],
  pause: schema.orNull(PAUSE),
  breaker: [schema.orNull(BREAKER, "Null when it is closed."), null],
  backlog: [schema.countOrNull("Rows that wait."), 812],
  oldestAgeMs: [schema.nullable("number", { minimum: 0, description: "Age of the oldest due row." }), 61200],
  inFlight: [schema.countOrNull("Rows that pollers have claimed, also those that wait for a slot."), 0],
  blockedKeys: [schema.countOrNull("Keys with a row that waits for its retry or is parked."), 3],
  parked: [schema.countOrNull("Parked rows."), 0],
  recent: schema.orNull(RECENT, "Deliveries of the last five minutes; null if the figures cannot be read."),
  rate: schema.orNull(RATE, "Null without a limit."),
  lastSuccessAt: [TIME_OR_NULL, "2025-01-31T11:59:58.120Z"],
  lastFailureAt: TIME_OR_NULL,
  lastError: TEXT_OR_NULL,
});

export const listDestinations = ({ read, destinations }: Admin) =>
  read("admin_destinations", {
    summary: "Show the destinations",
    description: "Every configured destination: its state, its backlog, its last deliveries.",
    answers: [
      answer.json(
        200,
        "The destinations in the order of the configuration.",
        schema.fromCells({ destinations: schema.list(DESTINATION) }),
      ),
      answer.STORAGE_FAILED,
    ],
    work: async () => ({ destinations: await destinations.list() }),
  });

export const pauseDestination = ({ operation, destinations }: Admin) =>
  operation("admin_destination_pause", {
    summary: "Pause a destination",
    description:
      "Stops deliveries to it in every replica and across restarts, until it is resumed or the given time has passed; " +
      "its rows wait. A further pause replaces the last one.",
    path: DESTINATION_NAME,
    body: {
      fields: {
        reason: field.required(
          field.text(REASON, "Why, for readers of the list of destinations."),
          "a text that says why",
        ),
        for: field.text(PAUSE_DURATION, "How long, such as `30s`, `15m`, `2h` or `1d`; absent: until it is resumed."),
        by: CALLER,
      },
      examples: { twoHours: { summary: "For two hours", value: { reason: "they migrate", for: "2h", by: "alice" } } },
    },
    answers: [
      answer.json(200, "It is paused.", schema.object({ paused: { const: true } })),
      ...unchangeable('"reason" is missing; a text that says why is expected'),
    ],
    async work({ name, reason, for: forMs, by }) {
      requireChangeable(destinations, name);
      await destinations.pause(name, { reason, forMs }, by);
      return { paused: true };
    },
  });

const DESTINATION_NAME = {
  name: field.ofPath(schema.TEXT, "Name of a configured destination.", (text) => text),
};

/** The refusals of a pause or its end. */
const unchangeable = (invalid: string): readonly answer.Answer[] => [
  answer.invalidBody(invalid),
  answer.error(404, "No such destination.", 'There is no destination "biling" (there are billing, audit)'),
  answer.error(501, "The table of the destinations is not usable.", ERRORS.noDestinationTable),
  answer.STORAGE_FAILED,
];

/** @throws Refusal when the destination is not configured, or the table for its pause is missing */
function requireChangeable(control: DestinationControl, name = ""): asserts name is string {
  if (!control.isKnown(name)) {
    throw new Refusal(404, `There is no destination ${JSON.stringify(name)} (${knownNames(control.names)})`);
  }
  if (!control.canPause) throw new Refusal(501, ERRORS.noDestinationTable);
}

export const resumeDestination = ({ operation, destinations }: Admin) =>
  operation("admin_destination_resume", {
    summary: "Resume a destination",
    description: "Ends a pause. Needs no body.",
    path: DESTINATION_NAME,
    body: { fields: { by: CALLER }, examples: { byAlice: { summary: "With the caller", value: { by: "alice" } } } },
    answers: [
      answer.json(
        200,
        "It is not paused.",
        schema.object({ resumed: [schema.bool("False when it was not paused."), true] }),
      ),
      ...unchangeable("the body is an array; a JSON object is expected"),
    ],
    async work({ name, by }) {
      requireChangeable(destinations, name);
      return { resumed: await destinations.resume(name, by) };
    },
  });
