import { expect, test } from "@jest/globals";
import { JsonDocument } from "../../../../src/core/receipt/jsonDocument.ts";
import { createExpiry, type TimeSettings, warnOfTimes } from "../../../../src/core/receipt/times.ts";
import { ManualClock, recordingLog } from "../../../support/recorders.ts";

function expiryOf(settings: TimeSettings, body: string, headers: Readonly<Record<string, string>> = {}) {
  const { log, lines } = recordingLog();
  const expiry = createExpiry(settings, warnOfTimes("orders", { log, clock: new ManualClock() }));
  const found = expiry?.({ body: Buffer.from(body), document: new JsonDocument(body), headers });
  return { found, warned: lines.map(({ fields }) => fields.key) };
}

const PATHS = { expiresAtPath: ["$.until", "$.data.until"] };
const HEADER = { expiresAtHeader: "X-Expires" };

test.each([
  ["nothing", {}, "{}", {}, undefined],
  ["a time to live", { timeToLive: 5000 }, "{}", {}, { at: null, afterMs: 5000 }],
  ["a path", PATHS, '{"until":"1970-01-01T00:01:00Z"}', {}, { at: 60_000, afterMs: null }],
  ["the second path", PATHS, '{"data":{"until":60}}', {}, { at: 60_000, afterMs: null }],
  ["a path without a value", PATHS, '{"until":null}', {}, undefined],
  [
    "a header before the path",
    { ...HEADER, ...PATHS },
    '{"until":9}',
    { "x-expires": "60" },
    { at: 60_000, afterMs: null },
  ],
  ["both a time and a time to live", { ...PATHS, timeToLive: 1 }, '{"until":60}', {}, { at: 60_000, afterMs: 1 }],
] as const)("a message expires by %s", (_what, settings, body, headers, expected) => {
  expect(expiryOf(settings, body, headers)).toEqual({ found: expected, warned: [] });
});
