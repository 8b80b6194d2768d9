import type { Health } from "../../core/health.ts";
import { send } from "../exchange.ts";
import { plain } from "../openapi/answers.ts";
import { route } from "../routes.ts";

const PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8";

/** @param read gives all metrics in the Prometheus text format */
export const metrics = (health: Pick<Health, "readiness">, read: () => Promise<string>) =>
  route(
    "metrics",
    {
      summary: "The metrics of this process",
      description: "Prometheus text format. Without credentials: keep it on an internal network.",
      answers: [plain("Every metric.", PROMETHEUS_TEXT)],
    },
    async (_req, res) => {
      // Each scrape renews `svc_component_up`, so that alerts need no further probe.
      await health.readiness();
      send(res, 200, PROMETHEUS_TEXT, await read());
    },
  );
