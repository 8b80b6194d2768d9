import { expect, test } from "@jest/globals";
import { startDoomed } from "../support/doomed.ts";
import { eventually } from "../support/eventually.ts";
import { History } from "../support/history.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { ordersTo, useServices } from "../support/service.ts";
import { allDelivered, sendTraffic } from "../support/traffic.ts";

const services = useServices();
failOnLeaks();

const KEYS = 40;
const MESSAGES_PER_KEY = 30;
/** The replica is killed after this many receipts: the senders are in the middle of theirs. */
const ACKNOWLEDGED_BEFORE = 400;
/** Below the 30 s of a lease by default; the other replica must not outlive it, however busy the machine is. */
const LEASE_MS = 10_000;

test("a replica killed in mid-traffic loses nothing, breaks no order, and repeats only what it had in flight", async () => {
  const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const config = ordersTo(receiver, {
    destinations: { receiver: { path: "/survivor" } },
    outbox: { claimTimeoutMs: LEASE_MS },
  });
  const history = new History();
  const doomed = await startDoomed(services, receiver, history, { database, config });
  const survivor = await services.start({ database, config });
  const to = [doomed.service, survivor];
  const sending = sendTraffic({ history, to, keys: KEYS, messagesPerKey: MESSAGES_PER_KEY });
  await doomed.killBehind(ACKNOWLEDGED_BEFORE);

  // The rows of the killed replica, and for the moment some of the other one.
  const claimed = await database.query<{ id: string; left: number }>(
    `SELECT headers->>'x-idempotency-key' AS id, extract(epoch FROM lease_expires_at - clock_timestamp())::float * 1000 AS left
     FROM outbox WHERE state = 'processing'`,
  );
  history.mayRepeat(claimed.map(({ id }) => id));
  for (const { left } of claimed) expect(left).toBeLessThanOrEqual(LEASE_MS);
  expect(history.acknowledgedCount).toBeLessThan(KEYS * MESSAGES_PER_KEY);
  await sending;
  expect(history.acknowledgedCount).toBe(history.sentCount);
  await allDelivered(history, 60_000);
  const unfinished = () => database.query("SELECT id FROM outbox WHERE state <> 'sent' LIMIT 1");
  await eventually(async () => expect(await unfinished()).toEqual([]), { timeoutMs: 20_000 });

  expect(history.violations()).toEqual([]);
  expect(history.repeated.length).toBeGreaterThan(0);
  for (const { from } of history.repeated) expect(from).toEqual(["/doomed", "/survivor"]);
  expect(await survivor.metric("svc_outbox_messages_reclaimed_total")).toBeGreaterThanOrEqual(history.repeated.length);
}, 120_000);
