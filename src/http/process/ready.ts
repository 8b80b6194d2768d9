import type { Health } from "../../core/health.ts";
import { sendJson } from "../exchange.ts";
import { json } from "../openapi/answers.ts";
import { named, object } from "../openapi/schemas.ts";
import { route } from "../routes.ts";

const SCHEMA = named(
  "Readiness",
  object({
    status: { enum: ["healthy", "unhealthy"] },
    components: {
      type: "object",
      description: "Every component of this process by name.",
      additionalProperties: object({ status: { enum: ["up", "down"] } }),
    },
  }),
);

const example = (status: string, database: string) => ({ status, components: { database: { status: database } } });

/** `GET /health` and `GET /health/ready`, which are the same. */
export const ready = (id: "health" | "health_ready", health: Pick<Health, "readiness">) =>
  route(
    id,
    {
      summary: "Check the components of this process",
      description:
        "For a readiness probe. Each check may take 3 seconds; one that has not finished by then counts as `down`. " +
        "`/health` and `/health/ready` are the same. The log has the details.",
      answers: [
        json(200, "Every component that decides readiness is up.", SCHEMA, example("healthy", "up")),
        json(503, "A component that decides readiness is down.", SCHEMA, example("unhealthy", "down")),
      ],
    },
    async (_req, res) => {
      const { ready, body } = await health.readiness();
      sendJson(res, ready ? 200 : 503, body);
    },
  );
