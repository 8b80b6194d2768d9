import { expect, test } from "@jest/globals";
import { statusText } from "../../../src/cli/status.ts";

test("rates are by the minute, however much of the present minute has passed", () => {
  const counted = (received: number, minute: number) => ({
    at: new Date(Date.UTC(2026, 0, 5, 8, minute)),
    received,
    duplicate: 0,
    filtered: 0,
    dead: 0,
  });
  // 600 a minute; 48 s of the present one have passed.
  const minutes = [...[25, 26, 27, 28, 29].map((minute) => counted(600, minute)), counted(480, 30)];
  const text = statusText({
    at: new Date(Date.UTC(2026, 0, 5, 8, 30, 48)),
    relayEnabled: true,
    roles: { poller: { replicas: 1 }, relay: { replicas: 1 } },
    replicas: [],
    sources: [{ name: "orders", consumption: "push", pending: 0, oldestAgeMs: null, minutes }],
    destinations: [],
    outbox: null,
  });
  expect(text).toMatch(/^orders +600 +0 +0 +0/m);
});
