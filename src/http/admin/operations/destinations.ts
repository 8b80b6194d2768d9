import type { DestinationControl } from "../../../core/destinations/control.ts";
import { DESTINATION } from "../../../core/operations/shown.ts";
import { knownNames, PAUSE_DURATION, REASON } from "../../../core/operations/syntax.ts";
import * as schema from "../../../model/described.ts";
import { ERRORS } from "../../exchange.ts";
import * as field from "../../fields.ts";
import * as answer from "../../openapi/answers.ts";
import { type Admin, CALLER, Refusal } from "../operation.ts";

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
