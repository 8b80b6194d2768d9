import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

/** Runs programs that use the clients for Python, Go and Java, with the packages that test/services/install.sh has installed. */

export const CLIENTS_FOLDER = fileURLToPath(new URL("../../clients/", import.meta.url));

/** How Go runs a package or a file with the client. @param modules where test/services/install.sh has put its modules */
export const goProgram = (modules: string, file: string) =>
  [["go", "-C", "go/internal/contract", "run", file], { GOMODCACHE: modules, GOFLAGS: "" }] as const;

export interface ProgramEnd {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Runs a program in the folder of the clients to its end.
 *
 * @param env variables beside those of this process
 * @param signal kills it
 */
export async function runProgram(
  [program = "", ...args]: readonly string[],
  env: Readonly<Record<string, string>>,
  signal?: AbortSignal,
): Promise<ProgramEnd> {
  const child = spawn(program, args, {
    cwd: CLIENTS_FOLDER,
    env: { ...process.env, ...env },
    ...(signal === undefined ? {} : { signal }),
  });
  const written = { stdout: "", stderr: "" };
  for (const stream of ["stdout", "stderr"] as const) {
    child[stream].on("data", (data) => {
      written[stream] += data;
    });
  }
  const [code] = await once(child, "close");
  return { code, ...written };
}
