import { rmSync } from "node:fs";
import { isAlive } from "../isAlive.ts";
import { requiredKinds } from "./availability.ts";
import { allRunFolders, createRunFolder, ownerOf, runFolder } from "./runFolder.ts";
import { endNotedProcesses } from "./serverProcess.ts";

/** The brokers' part of the beginning and the end of a test run. */

/** Removes what interrupted runs left, and prepares what the test files find out about servers. Starts none. */
export async function beginBrokerRun(): Promise<void> {
  requiredKinds();
  for (const folder of allRunFolders().filter((name) => !isAlive(ownerOf(name)))) {
    try {
      await endAll(folder);
    } catch {
      // Another user's: theirs to remove.
    }
  }
  createRunFolder();
}

/** Ends the shared servers, and those of tests that were cut off, and removes their data. */
export async function endBrokerRun(): Promise<void> {
  await endAll(runFolder());
}

async function endAll(folder: string): Promise<void> {
  await endNotedProcesses(folder);
  rmSync(folder, { recursive: true, force: true });
}
