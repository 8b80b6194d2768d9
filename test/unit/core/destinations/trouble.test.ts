import { expect, test } from "@jest/globals";
import { DestinationTrouble } from "../../../../src/core/destinations/trouble.ts";
import { StoreError } from "../../../../src/model/errors.ts";
import { ManualClock, recordingLog } from "../../../support/recorders.ts";

const DROPPED = new StoreError("schema", 'destinations.states: relation "outbox_destination" does not exist');
const FAULT = { what: "the table does not exist", remedy: "CREATE TABLE outbox_destination (...);" };

function setup(destinationFault = async (): Promise<typeof FAULT | undefined> => FAULT) {
  const clock = new ManualClock();
  const { log, lines } = recordingLog();
  return { clock, lines, trouble: new DestinationTrouble({ schema: { destinationFault }, clock, log }) };
}

test("a table that cannot be used is told once a minute, with the statement that mends it", async () => {
  const { clock, lines, trouble } = setup();
  for (let second = 0; second <= 120; second += 1) {
    await trouble.failed(DROPPED, second + 1);
    clock.advance(1000);
  }
  expect(lines.map(({ level, fields }) => [level, fields.failures, fields.problem, fields.remedy])).toEqual(
    [1, 61, 121].map((failures) => ["error", failures, FAULT.what, FAULT.remedy]),
  );
});

test("a database that is away is told without looking at the table", async () => {
  const { lines, trouble } = setup(() => {
    throw new Error("nobody is to ask");
  });
  await trouble.failed(new StoreError("unavailable", "the connection broke"), 1);
  expect(lines).toHaveLength(1);
  expect(lines[0]?.fields).not.toHaveProperty("remedy");
});

test("where the table cannot be looked at either, the error itself is told", async () => {
  const { lines, trouble } = setup(() => Promise.reject(new StoreError("unavailable", "the connection broke")));
  await trouble.failed(DROPPED, 1);
  expect(lines).toMatchObject([{ level: "error", fields: { err: DROPPED } }]);
});
