import { mkdirSync, mkdtempSync, readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { unique } from "./unique.ts";

/** The folder of a test run: the data of all its servers, the notes of their processes, the addresses of the shared ones. */

const PREFIX = "svc-test-brokers-";
const VARIABLE = "SVC_TEST_BROKERS_FOLDER";

/** Makes the folder of the run that this process leads, and tells the workers by the environment. */
export function createRunFolder(): string {
  const folder = mkdtempSync(path.join(tmpdir(), `${PREFIX}${process.pid}-`));
  process.env[VARIABLE] = folder;
  return folder;
}

/** The folder of this run. */
export function runFolder(): string {
  const folder = process.env[VARIABLE];
  if (folder === undefined)
    throw new Error(`${VARIABLE} is not set: globalSetup.ts sets it, so run the test with jest`);
  return folder;
}

/** A new folder in the folder of the run. */
export function serverFolder(kind: string): string {
  const folder = path.join(runFolder(), unique(kind));
  mkdirSync(folder);
  return folder;
}

/** The id of the process that leads the run with a folder (default this run). */
export function ownerOf(folder: string = runFolder()): number {
  return Number(path.basename(folder).slice(PREFIX.length).split("-")[0]);
}

/** The folders of all runs on this machine. */
export function allRunFolders(): readonly string[] {
  return readdirSync(tmpdir())
    .filter((name) => name.startsWith(PREFIX))
    .map((name) => path.join(tmpdir(), name));
}
