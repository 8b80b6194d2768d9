import { expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.ts";
import { History } from "../support/history.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { ordersTo, useServices } from "../support/service.ts";
import { allDelivered, record, sendTraffic } from "../support/traffic.ts";

const services = useServices();
failOnLeaks();

const KEYS = 40;
const MESSAGES_PER_KEY = 25;
const DELIVERED_BEFORE = 50;
const CONCURRENCY = 8;

test("a replica that was stopped for longer than its leases finds its rows taken over and touches none of them", async () => {
  const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const config = ordersTo(receiver, { outbox: { claimTimeoutMs: 3000, concurrency: CONCURRENCY } });
  const ingest = await services.start({ database, config, roles: ["ingest"] });
  const deliverer = (path: string) =>
    services.start({ database, config, roles: ["relay", "poller"], env: { SVC_DESTINATIONS_RECEIVER_PATH: path } });
  const sleeper = await deliverer("/sleeper");
  const history = new History();
  let delivered = 0;
  let asleep = false;
  record(receiver, history, (_id, path) => {
    if (path !== "/sleeper") return;
    delivered += 1;
    if (delivered !== DELIVERED_BEFORE) return;
    sleeper.process.kill("SIGSTOP");
    asleep = true;
  });

  const sending = sendTraffic({ history, to: [ingest], keys: KEYS, messagesPerKey: MESSAGES_PER_KEY });
  await eventually(() => asleep, { timeoutMs: 20_000, label: "the stop of the first replica" });
  // What of these it had delivered is not settled.
  const claimed = await database.query<{ id: string }>(
    "SELECT headers->>'x-idempotency-key' AS id FROM outbox WHERE state = 'processing'",
  );
  history.mayRepeat(claimed.map(({ id }) => id));
  await deliverer("/waker");
  await sending;
  // All of it, also what the sleeper had claimed: the other replica takes that over when the leases have run out.
  await allDelivered(history, 60_000);
  const unfinished = () => database.query("SELECT id FROM outbox WHERE state <> 'sent' LIMIT 1");
  await eventually(async () => expect(await unfinished()).toEqual([]), { timeoutMs: 20_000 });
  const rows = () => database.query("SELECT id, state, attempt, updated_at FROM outbox ORDER BY sequence");
  const before = await rows();

  sleeper.process.kill("SIGCONT");
  await eventually(async () => expect(await sleeper.metric("svc_claims_lost_total")).toBeGreaterThan(0));
  // What it may still hold back would show by the time it has worked again.
  await sendTraffic({ history, to: [ingest], keys: KEYS, messagesPerKey: 5, prefix: "after" });
  await allDelivered(history, 30_000);
  await eventually(async () => expect(await unfinished()).toEqual([]));

  expect((await rows()).slice(0, before.length)).toEqual(before);
  for (const { from } of history.repeated) expect([...from].sort()).toEqual(["/sleeper", "/waker"]);
  // What was on its way out at the stop comes when the replica resumes: at most one message of a key, and `concurrency` in all. What waited behind it is never
  // sent by the old claim.
  const late = history.repeated.filter(({ from }) => from[0] === "/waker");
  expect(late.length).toBeLessThanOrEqual(CONCURRENCY);
  expect(new Set(late.map(({ key }) => key)).size).toBe(late.length);
  expect(history.violations()).toEqual([]);
}, 180_000);
