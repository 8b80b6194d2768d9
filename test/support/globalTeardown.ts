import { rmSync } from "node:fs";
import "./globalSetup.ts";

/** Stops the server of this run and removes its directory. */
export default async function globalTeardown(): Promise<void> {
  const running = globalThis.svcTestPostgres;
  if (running === undefined) return;
  await running.server.stop("immediate");
  rmSync(running.directory, { recursive: true, force: true });
}
