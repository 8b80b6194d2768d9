import { describe, expect, test } from "@jest/globals";
import { configuredInternalToken, publishableSubject } from "../../../../../src/adapters/destinations/nats/index.ts";

describe("the subject of a NATS publish", () => {
  test.each(["orders", "orders.created.eu", "a*b.c>", "größe.東京", "a.$KV.b", "_INBOXES.x", "x".repeat(3800)])(
    "may be %.40s",
    (subject) => {
      expect(publishableSubject(subject, undefined)).toBe(subject);
    },
  );

  test.each<[string | null, RegExp]>([
    ["", /is empty/],
    [null, /is empty/],
    ["a b", /blank or control/],
    ["a\tb", /blank or control/],
    ["a\r\nPUB b 0", /"a\\r\\nPUB b 0" holds a blank/],
    ["a\u0000", /blank or control/],
    ["a\u00a0b", /blank or control/],
    ["a..b", /empty token/],
    [".", /empty token/],
    ["a.", /empty token/],
    ["a.*.b", /wildcard \*/],
    [">", /wildcard >/],
    ["$JS.API.STREAM.DELETE.ORDERS", /own interface/],
    ["$SYS.REQ", /own interface/],
    ["$KV.prices.eur", /belongs to NATS itself: only the configuration can name \$KV/],
    ["$O.files.C.x", /belongs to NATS itself/],
    ["$MQTT.msgs.x", /belongs to NATS itself/],
    ["$SRV.PING", /belongs to NATS itself/],
    ["$JSON.x", /belongs to NATS itself/],
    ["_INBOX.abc.1", /belongs to NATS itself/],
    ["_INBOX", /belongs to NATS itself/],
    ["_R_.abc", /belongs to NATS itself/],
    ["é".repeat(1901), /longer than 3800 bytes/],
  ])("may not be %.40j", (subject, reason) => {
    expect(() => publishableSubject(subject, undefined)).toThrow(reason);
    expect(() => publishableSubject(subject, undefined)).toThrow(expect.objectContaining({ code: "subject_invalid" }));
  });

  test("is shown cut in an error when it is long", () => {
    expect(() => publishableSubject(`${"x".repeat(100_000)} `, undefined)).toThrow(/^.{200,300}$/);
  });

  test.each<[string, string | undefined, string, boolean]>([
    ["$KV.prices.{{ key }}", undefined, "$KV.prices.eur", true],
    ["$KV.{{ payload.bucket }}.x", undefined, "$KV.prices.x", true],
    ["$KV.prices.{{ key }}", undefined, "$O.files.x", false],
    ["$JS.API.{{ key }}", undefined, "$JS.API.INFO", false],
    ["{{ topic }}", undefined, "$KV.prices.eur", false],
    ["{{ payload.$KV.x }}", undefined, "$KV.prices.eur", false],
    ["_R_{{ topic }}.x", undefined, "_R_.x", false],
    ["_INBOX{{ key }}.x", undefined, "_INBOX.x", false],
    ["$KV.prices.x", "topic", "$KV.prices.eur", false],
  ])("of %s (from %s) may be %s: %s", (template, from, subject, permitted) => {
    const publish = () => publishableSubject(subject, configuredInternalToken(template, from));
    if (permitted) expect(publish()).toBe(subject);
    else expect(publish).toThrow(expect.objectContaining({ code: "subject_invalid" }));
  });
});
