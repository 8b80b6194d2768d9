import { destinationsAt, startReceipts } from "./endToEnd.ts";
import type { Environment } from "./environment.ts";
import { costInPairs, type Worker } from "./pairs.ts";
import type { Figure } from "./report.ts";

/** (ee) What a message costs from HTTP to HTTP when one trace of ten is kept, against none, in one build. */
export async function tracing(environment: Environment): Promise<readonly Figure[]> {
  const collector = await environment.program("receiver.js", []);
  Object.assign(process.env, {
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${collector.port}`,
    OTEL_TRACES_SAMPLER: "parentbased_traceidratio",
    OTEL_TRACES_SAMPLER_ARG: "0.1",
  });
  const start =
    (enabled: boolean) =>
    (own: Environment): Promise<Worker> =>
      startReceipts(own, (port) => ({ ...destinationsAt(port, ["receiver"]), tracing: { enabled } }), 1);
  const base = { name: "without tracing", start: start(false), checkout: undefined, most: { us: 1.1, log: 1.2 } };
  return await costInPairs("(ee) HTTP in to HTTP out, a tenth of the traces", start(true), base);
}
