import { beforeAll, expect, test } from "@jest/globals";
import { PARKED_UNTIL } from "../../../src/model/rows.ts";
import { useBrowser } from "../../support/browser.ts";
import { describeWithTools } from "../../support/describeWithTools.ts";
import { useServices } from "../../support/service.ts";
import { type Furnished, furnish } from "./fixture.ts";
import { goTo, loaded, signIn } from "./steps.ts";

/** Every page over an outbox of a million rows, of which most are sent, as in a service that has run for a while. */

const services = useServices("block");

const PAGES: readonly (readonly [string, (furnished: Furnished) => string])[] = [
  ["Overview", () => "#/"],
  ["Destinations", () => "#/destinations"],
  ["Messages", () => "#/messages"],
  ["Messages", () => "#/messages?state=dead"],
  ["Messages", () => "#/messages?state=pending&destination=billing"],
  ["Message", ({ retried }) => `#/messages/${retried}`],
  ["Message", ({ behindParked }) => `#/messages/${behindParked}`],
  ["Failures", () => "#/failures"],
  ["Blocked keys", () => "#/blocked"],
  ["Replays", () => "#/replays"],
  ["Configuration", () => "#/config"],
  ["Audit log", () => "#/audit"],
];
const ROWS = 1_000_000;
const ROWS_AT_ONCE = 50_000;
const LONGEST_MS = 500;
/** On a slow machine a page may take as long as so many scans of the outbox take there. */
const SCANS = 5;
/** The machine of the tests does other things too: the first of these that is in time counts, else the fastest. */
const TRIES = 12;

/** The shortest time of something, in ms, or the first that is in time. */
async function shortest(action: () => Promise<number>, longestMs: number): Promise<number> {
  let ms = Number.POSITIVE_INFINITY;
  for (let n = 0; n < TRIES && ms > longestMs; n++) ms = Math.min(ms, await action());
  return Math.round(ms);
}

describeWithTools(["chromium"], "with 1,000,000 rows in the outbox", () => {
  const browser = useBrowser();
  let furnished: Furnished;
  beforeAll(async () => {
    furnished = await furnish(services);
    // Without its indexes the table is filled in a third of the time; they are made afterwards.
    const indexes = await furnished.database.query<{ name: string; statement: string }>(
      `SELECT indexname AS name, indexdef AS statement FROM pg_indexes
        WHERE tablename = 'outbox' AND indexname NOT IN (SELECT conname FROM pg_constraint)`,
    );
    for (const { name } of indexes) await furnished.database.query(`DROP INDEX ${name}`);
    // In short transactions: a long one delays the replication slots of the tests beside this one.
    for (let from = 1; from <= ROWS; from += ROWS_AT_ONCE) {
      await furnished.database.query(
        `INSERT INTO outbox (topic, key, payload, state, attempt, last_error, created_at, scheduled_at, updated_at)
         SELECT CASE n % 3 WHEN 0 THEN 'payments.received' ELSE 'orders.created' END, 'k-' || n % 50000, '{}',
                CASE WHEN n <= 940000 THEN 'sent' WHEN n <= 960000 THEN 'dead' ELSE 'pending' END,
                CASE WHEN n > 940000 THEN 5 ELSE 0 END,
                CASE WHEN n > 940000 THEN 'answered 50' || n % 4 || ': case ' || n END,
                now() - interval '1 day' + n * interval '50 ms',
                CASE WHEN n > 999000 THEN '${PARKED_UNTIL}' ELSE now() - interval '1 day' + n * interval '50 ms' END,
                now() - interval '1 day' + n * interval '50 ms'
           FROM generate_series($1::int, $1 + $2 - 1) n`,
        [from, ROWS_AT_ONCE],
      );
    }
    for (const { statement } of indexes) await furnished.database.query(statement);
    await furnished.database.query("VACUUM ANALYZE outbox");
  }, 300_000);

  test(`every page is there within ${LONGEST_MS} ms, or ${SCANS} scans of the table`, async () => {
    const page = await browser.open(furnished.address);
    await signIn(page, "alice");
    const scanMs = await shortest(async () => {
      const begun = performance.now();
      await furnished.database.query("SELECT count(payload) FROM outbox");
      return performance.now() - begun;
    }, 0);
    const longestMs = Math.max(LONGEST_MS, SCANS * scanMs);
    const times: Record<string, number> = {};
    times["The whole page, with the overview"] = await shortest(async () => {
      const begun = performance.now();
      await page.reload();
      await page.getByRole("heading", { level: 3, name: "shipping" }).waitFor();
      return performance.now() - begun;
    }, longestMs);
    for (const [title, hash] of PAGES) {
      times[`${title} ${hash(furnished).replace(/[0-9a-f-]{36}/, "{id}")}`] = await shortest(async () => {
        await goTo(page, "#/nowhere", "No such page");
        const begun = performance.now();
        await goTo(page, hash(furnished), title);
        await loaded(page);
        return performance.now() - begun;
      }, longestMs);
    }
    process.stdout.write(`ms for a scan: ${scanMs}, for each page: ${JSON.stringify(times, null, 2)}\n`);
    expect(Object.entries(times).filter(([, ms]) => ms > longestMs)).toEqual([]);
  }, 180_000);
});
