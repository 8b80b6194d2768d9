import { inspect } from "node:util";
import { describe, expect, test } from "@jest/globals";
import { eventually } from "../../support/eventually.ts";
import { recordingLog } from "../../support/recorders.ts";
import { within } from "../../support/within.ts";
import type { SourceHarness } from "../source.ts";
import { cutOff, numbered, PROMPT_MS, sourceBench, testMs } from "./bench.ts";

/** Two tries at least are to be seen in the log. */
const TRIES = 2;

/** A broker that knows the source by another password. */
export function exerciseCredentials(harness: SourceHarness): void {
  describe("with wrong credentials", () => {
    const bench = sourceBench(harness);

    test(
      "continues to try until it is stopped, says what is wrong, and shows the password nowhere",
      async () => {
        const { wrongPassword } = bench.fixture;
        if (wrongPassword === undefined) return;
        await bench.fixture.send(numbered(1, 1));
        const { log, lines } = recordingLog();
        const { source, intake } = bench.create({ wrongCredentials: true, log });
        await within(PROMPT_MS, "start", source.start());
        const refusals: unknown[] = [];
        await eventually(
          async () => {
            refusals.push(await refusal(source.check()));
            expect(lines.length).toBeGreaterThanOrEqual(TRIES);
          },
          { timeoutMs: bench.patienceMs, label: `a log line for each of ${TRIES} tries` },
        );
        await cutOff({ source, intake });
        refusals.push(await refusal(source.check()));
        expect(intake.offered).toEqual([]);
        for (const error of refusals) expect(error).toBeInstanceOf(Error);
        const shown = inspect({ refusals, lines }, { depth: 10, showHidden: true, maxStringLength: null });
        // Not `not.toContain`: its failure would print everything.
        expect(shown.includes(wrongPassword)).toBe(false);
      },
      testMs(harness),
    );
  });
}

/** What a check that must reject rejected with. */
async function refusal(checked: Promise<void>): Promise<unknown> {
  const rejected = checked.then(
    () => {
      throw new Error("check resolved with wrong credentials");
    },
    (error: unknown) => error,
  );
  return within(PROMPT_MS, "check", rejected);
}
