import { execFileSync } from "node:child_process";
import { closeSync, openSync, writeFileSync, writeSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { requiredKinds } from "../brokers/availability.ts";
import { findCompiler } from "../brokers/programs.ts";
import type { Need } from "../describeWhere.ts";

const SOURCE = fileURLToPath(new URL("databaseClock.c", import.meta.url));

/**
 * The clock of a database server, which can be stepped while it runs: the server is started with a library of ours that adds to the time what stands in a
 * file. libfaketime allocates memory whenever somebody asks for the time, and PostgreSQL asks in a signal handler, when a timeout ends: now and then a
 * backend found its memory corrupted.
 */
export class DatabaseClock {
  readonly #file: string;
  readonly #library: string;

  private constructor(folder: string, compiler: string) {
    this.#file = path.join(folder, "offset");
    this.#library = path.join(folder, "clock.so");
    execFileSync(compiler, ["-shared", "-fPIC", "-O2", "-o", this.#library, SOURCE]);
    writeFileSync(this.#file, inBytes(0));
  }

  /**
   * Undefined if it cannot be made, for want of Linux or of a C compiler (`test/services/install.sh` gets one).
   *
   * @param folder for the file and the library; the user of the server must be able to read there
   * @throws Error in that case when `SVC_TEST_REQUIRE` names `cc`
   */
  static inFolder(folder: string): DatabaseClock | undefined {
    const compiler = compilerOfClocks();
    if (compiler !== undefined) return new DatabaseClock(folder, compiler);
    if (!NEEDS_COMPILER.isRequired) return undefined;
    throw new Error(NEEDS_COMPILER.howToGet);
  }

  /** Variables of the server's process. */
  get environment(): Readonly<Record<string, string>> {
    return { LD_PRELOAD: this.#library, CLOCK_OFFSET_FILE: this.#file };
  }

  /** From now on the server's clock is wrong by this much. */
  step(offsetSeconds: number): void {
    // In place, since its processes have the file in their memory, and at once: never half of it.
    const file = openSync(this.#file, "r+");
    try {
      writeSync(file, inBytes(offsetSeconds), 0, undefined, 0);
    } finally {
      closeSync(file);
    }
  }

  /** A SQL function `true_time()`: what the clock of the machine says, for the journal. */
  get trueTimeSchema(): string {
    return `
CREATE FUNCTION true_time() RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
  before bytea;
  now timestamptz;
BEGIN
  LOOP
    before := pg_read_binary_file('${this.#file}');
    now := clock_timestamp();
    EXIT WHEN before = pg_read_binary_file('${this.#file}');
  END LOOP;
  RETURN now - ('x' || encode(before, 'hex'))::bit(32)::int * interval '1 second';
END $$;
`;
  }
}

/** {@link DatabaseClock.trueTimeSchema} for a server whose clock is that of the machine. */
export const TRUE_TIME_SCHEMA =
  "CREATE FUNCTION true_time() RETURNS timestamptz LANGUAGE sql AS 'SELECT clock_timestamp()';";

/** The compiler of the library; undefined if the library cannot be made. */
function compilerOfClocks(): string | undefined {
  return process.platform === "linux" ? findCompiler() : undefined;
}

/** What tests need that step a clock. */
export const NEEDS_COMPILER: Need = {
  isThere: compilerOfClocks() !== undefined,
  isRequired: requiredKinds().has("cc"),
  what: "a C compiler",
  howToGet: "there is no C compiler: run test/services/install.sh",
  whySkipped: "no C compiler: run test/services/install.sh",
};

function inBytes(offsetSeconds: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(offsetSeconds);
  return bytes;
}
