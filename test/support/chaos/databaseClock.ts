import { existsSync, readdirSync, renameSync, writeFileSync } from "node:fs";
import path from "node:path";
import { requiredKinds } from "../brokers/availability.ts";

/**
 * The clock of a database server, which can be stepped while it runs: by libfaketime, which the server is started with and which reads the offset from a
 * file whenever somebody asks for the time.
 */
export class DatabaseClock {
  readonly #file: string;
  readonly #library: string;

  /** @param folder for the file; whoever runs the server must be able to read there */
  private constructor(folder: string, library: string) {
    this.#file = path.join(folder, "offset");
    this.#library = library;
    this.step(0);
  }

  /**
   * Undefined where libfaketime is not installed (`test/services/install.sh` gets it).
   *
   * @throws Error in that case when `SVC_TEST_REQUIRE` names `faketime`
   */
  static inFolder(folder: string): DatabaseClock | undefined {
    const library = findLibrary();
    if (library !== undefined) return new DatabaseClock(folder, library);
    if (!requiredKinds().has("faketime")) return undefined;
    throw new Error("libfaketime is not installed: run test/services/install.sh");
  }

  /** Variables of the server's process. */
  get environment(): Readonly<Record<string, string>> {
    return {
      LD_PRELOAD: this.#library,
      FAKETIME_TIMESTAMP_FILE: this.#file,
      FAKETIME_NO_CACHE: "1",
      FAKETIME_DONT_FAKE_MONOTONIC: "1",
    };
  }

  /** From now on the server's clock is wrong by this much. */
  step(offsetSeconds: number): void {
    // At once, and never half of it.
    writeFileSync(`${this.#file}.next`, `${offsetSeconds < 0 ? "" : "+"}${offsetSeconds}`);
    renameSync(`${this.#file}.next`, this.#file);
  }

  /** A SQL function `true_time()`: what the clock of the machine says, for the journal. */
  get trueTimeSchema(): string {
    return `
CREATE FUNCTION true_time() RETURNS timestamptz LANGUAGE plpgsql AS $$
DECLARE
  before text;
  now timestamptz;
BEGIN
  LOOP
    before := pg_read_file('${this.#file}');
    now := clock_timestamp();
    EXIT WHEN before = pg_read_file('${this.#file}');
  END LOOP;
  RETURN now - before::int * interval '1 second';
END $$;
`;
  }
}

/** {@link DatabaseClock.trueTimeSchema} for a server whose clock is that of the machine. */
export const TRUE_TIME_SCHEMA =
  "CREATE FUNCTION true_time() RETURNS timestamptz LANGUAGE sql AS 'SELECT clock_timestamp()';";

/** The library of the machine; undefined where it is not installed. */
export function findLibrary(): string | undefined {
  const folders = existsSync("/usr/lib") ? readdirSync("/usr/lib").map((name) => `/usr/lib/${name}/faketime`) : [];
  return ["/usr/lib/faketime", ...folders]
    .map((folder) => `${folder}/libfaketime.so.1`)
    .find((file) => existsSync(file));
}
