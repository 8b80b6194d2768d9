import { expect, test } from "@jest/globals";
import type { BrokerProperties } from "../../../../src/core/receipt/attributes.ts";
import { JsonDocument } from "../../../../src/core/receipt/jsonDocument.ts";
import { createSchedule, type TimeSettings, warnOfTimes } from "../../../../src/core/receipt/times.ts";
import { ManualClock, recordingLog } from "../../../support/recorders.ts";

interface Given {
  readonly body?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly properties?: BrokerProperties;
}

function scheduleOf(settings: TimeSettings, { body = "{}", headers = {}, properties }: Given) {
  const { log, lines } = recordingLog();
  const schedule = createSchedule(settings, warnOfTimes("orders", { log, clock: new ManualClock() }));
  const found = schedule?.({ body: Buffer.from(body), document: new JsonDocument(body), headers, properties });
  return { found, warned: lines.map(({ fields }) => fields.key) };
}

const DELAY = { initialDelay: 5000 };
const PUBLISHED = { scheduledAtHeader: "X-Time", scheduledAtPath: ["$.time", "$.data.time"] };
const NOT_BEFORE = { deliverAtHeader: "X-Due", deliverAtPath: "$.due" };
const LAST = 253_402_300_799_999;

test.each<[string, TimeSettings, Given, object | undefined]>([
  ["nothing configured", {}, {}, undefined],
  ["no delay", PUBLISHED, { body: '{"time":60}' }, undefined],
  ["a delay alone", DELAY, {}, { delayMs: 5000 }],
  ["a time in a header", { ...DELAY, ...PUBLISHED }, { headers: { "x-time": "60" } }, { publishedAt: 60_000 }],
  ["the second path", { ...DELAY, ...PUBLISHED }, { body: '{"data":{"time":60}}' }, { publishedAt: 60_000 }],
  [
    "a header, a path and a broker",
    { ...DELAY, ...PUBLISHED },
    { headers: { "x-time": "1" }, body: '{"time":2}', properties: { publishedAt: 3000 } },
    { publishedAt: 1000 },
  ],
  [
    "a path and a broker",
    { ...DELAY, ...PUBLISHED },
    { body: '{"time":2}', properties: { publishedAt: 3000 } },
    { publishedAt: 2000 },
  ],
  [
    "an event and a broker",
    { ...DELAY, ...PUBLISHED, cloudEvents: true },
    { headers: { "ce-time": "1970-01-01T00%3A00:07.5%2B00:00" }, properties: { publishedAt: 3000 } },
    { publishedAt: 7500 },
  ],
  [
    "a path and an event",
    { ...DELAY, ...PUBLISHED, cloudEvents: true },
    { headers: { "ce-time": "1970-01-01T00:00:07Z" }, body: '{"time":2}' },
    { publishedAt: 2000 },
  ],
  [
    "an event without a time",
    { ...DELAY, cloudEvents: true },
    { properties: { publishedAt: 3000 } },
    { publishedAt: 3000 },
  ],
  ["what is no event", DELAY, { headers: { "ce-time": "1970-01-01T00:00:07Z" } }, {}],
  ["an event without a delay", { ...NOT_BEFORE, cloudEvents: true }, { headers: { "ce-time": "60" } }, undefined],
  ["a broker", { ...DELAY, ...PUBLISHED }, { properties: { publishedAt: 0 } }, { publishedAt: 0 }],
  ["a broker without a delay", NOT_BEFORE, { properties: { publishedAt: 3000 } }, undefined],
  ["the last time", DELAY, { properties: { publishedAt: LAST } }, { publishedAt: LAST }],
  ["a time to wait for", NOT_BEFORE, { body: '{"due":60}' }, { delayMs: 0, notBefore: 60_000 }],
  [
    "a header to wait for",
    NOT_BEFORE,
    { headers: { "X-Due": "1970-01-01T00:00:07Z" } },
    { delayMs: 0, notBefore: 7000 },
  ],
  ["no time to wait for", NOT_BEFORE, {}, undefined],
  [
    "all of it",
    { ...DELAY, ...PUBLISHED, ...NOT_BEFORE },
    { body: '{"time":1,"due":60}' },
    { publishedAt: 1000, notBefore: 60_000 },
  ],
])("a message is due by %s", (_what, settings, given, expected) => {
  const whole = expected && { delayMs: 5000, publishedAt: null, notBefore: null, ...expected };
  expect(scheduleOf(settings, given)).toEqual({ found: whole, warned: [] });
});

test.each([-1, Number.NaN, LAST + 1, Number.POSITIVE_INFINITY])("a broker's time %s counts as none", (publishedAt) => {
  expect(scheduleOf(DELAY, { properties: { publishedAt } }).found).toMatchObject({ publishedAt: null });
});

test("an event's time that cannot be read counts as none", () => {
  const given = { headers: { "ce-time": "soon" }, properties: { publishedAt: 9 } };
  expect(scheduleOf({ ...DELAY, cloudEvents: true }, given)).toEqual({
    found: { delayMs: 5000, publishedAt: 9, notBefore: null },
    warned: ["cloudEvents"],
  });
});

test("a time that cannot be read counts as none, and the next place is tried", () => {
  const settings = { ...DELAY, ...PUBLISHED, ...NOT_BEFORE };
  const given = {
    body: '{"time":"soon","due":"later"}',
    headers: { "x-time": "then" },
    properties: { publishedAt: 9 },
  };
  expect(scheduleOf(settings, given)).toEqual({
    found: { delayMs: 5000, publishedAt: 9, notBefore: null },
    warned: ["deliverAtPath", "scheduledAtHeader", "scheduledAtPath"],
  });
});
