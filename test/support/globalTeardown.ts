import { rmSync } from "node:fs";
import { endBrokerRun } from "./brokers/run.ts";
import { dropCitusDatabase } from "./citus.ts";
import "./globalSetup.ts";

/** Stops the servers of this run and removes their directories. */
export default async function globalTeardown(): Promise<void> {
  await endBrokerRun();
  const template = process.env.SVC_TEST_CITUS_TEMPLATE;
  if (template !== undefined) await dropCitusDatabase(template);
  const running = globalThis.svcTestPostgres;
  if (running === undefined) return;
  await running.server.stop("immediate");
  rmSync(running.directory, { recursive: true, force: true });
}
