import { closeSync, existsSync, openSync, readFileSync, renameSync, writeFileSync, writeSync } from "node:fs";
import path from "node:path";
import { eventually } from "../eventually.ts";
import { isAlive } from "../isAlive.ts";
import { START_TIMEOUT_MS } from "./ready.ts";
import { runFolder } from "./runFolder.ts";

/** Gives all test files of a run, in whatever process, the same server: the first file that asks starts it, the others wait. */

type Outcome<A> = { readonly address: A } | { readonly failure: string };

/**
 * The address of the one server of the run.
 *
 * @param name of the server, the same for everybody who means the same one
 * @param start starts it; called once in the run
 * @throws Error of the start, for everybody who asks
 */
export async function once<A>(name: string, start: () => Promise<A>): Promise<A> {
  const base = path.join(runFolder(), name);
  const outcomeFile = `${base}.json`;
  if (!existsSync(outcomeFile)) {
    if (takeLock(`${base}.lock`)) await record(outcomeFile, start);
    else await untilRecorded(name, outcomeFile, `${base}.lock`);
  }
  const outcome = JSON.parse(readFileSync(outcomeFile, "utf8")) as Outcome<A>;
  if ("failure" in outcome) throw new Error(outcome.failure);
  return outcome.address;
}

function takeLock(file: string): boolean {
  try {
    const lock = openSync(file, "wx");
    writeSync(lock, String(process.pid));
    closeSync(lock);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  }
}

async function record<A>(file: string, start: () => Promise<A>): Promise<void> {
  const outcome: Outcome<A> = await start().then(
    (address) => ({ address }),
    (error: unknown) => ({ failure: error instanceof Error ? error.message : String(error) }),
  );
  // It gets its name only when it is complete.
  writeFileSync(`${file}.new`, JSON.stringify(outcome));
  renameSync(`${file}.new`, file);
}

async function untilRecorded(name: string, outcomeFile: string, lockFile: string): Promise<void> {
  const ready = await eventually(
    () => {
      if (existsSync(outcomeFile)) return { ready: true };
      const starter = readFileSync(lockFile, "utf8");
      if (starter !== "" && !isAlive(Number(starter))) return { ready: existsSync(outcomeFile) };
      throw new Error(`process ${starter} is starting it`);
    },
    { timeoutMs: START_TIMEOUT_MS, intervalMs: 50, label: `the start of the shared ${name} server` },
  );
  if (!ready.ready) throw new Error(`the process that was starting the shared ${name} server has ended`);
}
