import { describe, test } from "@jest/globals";

/** A server that tests need. */
export interface Need {
  readonly isThere: boolean;
  /** `SVC_TEST_REQUIRE` names it. */
  readonly isRequired: boolean;
  /** What stands after "needs" in the name of the test. */
  readonly what: string;
  /** What a developer can do, as an error. */
  readonly howToGet: string;
  /** The same in short, for the name of a skipped block. */
  readonly whySkipped: string;
}

/** `describe` if a server is available. Else the block is skipped and its name gives the reason, or fails if the server is required. */
export function describeWhere(need: Need, name: string, block: () => void): void {
  if (need.isThere) {
    describe(name, block);
    return;
  }
  if (need.isRequired) {
    describe(name, () => {
      test(`needs ${need.what}`, () => {
        throw new Error(need.howToGet);
      });
    });
    return;
  }
  describe.skip(`${name} (${need.whySkipped})`, block);
}
