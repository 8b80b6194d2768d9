import { rmSync } from "node:fs";
import { endBrokerRun } from "./brokers/run.ts";
import "./globalSetup.ts";

/** Stops the servers of this run and removes their directories. */
export default async function globalTeardown(): Promise<void> {
  await endBrokerRun();
  const running = globalThis.svcTestPostgres;
  if (running === undefined) return;
  await running.server.stop("immediate");
  rmSync(running.directory, { recursive: true, force: true });
}
