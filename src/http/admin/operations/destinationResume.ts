import * as answer from "../../openapi/answers.ts";
import * as schema from "../../openapi/schemas.ts";
import { type Admin, CALLER } from "../operation.ts";
import { DESTINATION_NAME, requireChangeable, unchangeable } from "./destinationPause.ts";

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
