import { afterAll, afterEach, beforeAll, beforeEach } from "@jest/globals";
import { TEST_APPLICATION_NAME, type TestDatabase } from "./databases.ts";
import { eventually } from "./eventually.ts";

/** What a test must have closed at its end: listening servers, connections and child processes of this process. */
const WATCHED = ["TCPServerWrap", "TCPSocketWrap", "PipeWrap", "ProcessWrap", "MessagePort"] as const;

export type OpenResources = Readonly<Record<(typeof WATCHED)[number], number>>;

/** Counts what is open in this process now. */
export function openResources(): OpenResources {
  const active = process.getActiveResourcesInfo();
  const count = (kind: string) => active.filter((each) => each === kind).length;
  return Object.fromEntries(WATCHED.map((kind) => [kind, count(kind)])) as OpenResources;
}

/**
 * Waits until nothing of a kind is open that was not open before.
 *
 * @param before the count to go back to
 * @throws Error that tells what is still open when that takes longer than `timeoutMs`
 */
export async function assertNothingLeft(before: OpenResources, timeoutMs = 15_000): Promise<void> {
  await eventually(
    () => {
      const now = openResources();
      const left = WATCHED.filter((kind) => now[kind] > before[kind]).map(
        (kind) => `${now[kind] - before[kind]} ${kind}`,
      );
      if (left.length > 0) throw new Error(`left open: ${left.join(", ")}`);
    },
    { timeoutMs, label: "closing every server, connection and child process of the test" },
  );
}

/**
 * Waits until nobody but the test's own helper, and the nodes of a Citus cluster, is connected to a database.
 *
 * @throws Error that names the connections and their last statements when that takes longer than `timeoutMs`
 */
export async function assertNoConnections(database: TestDatabase, timeoutMs = 15_000): Promise<void> {
  await eventually(
    async () => {
      const rows = await database.query<{ application_name: string; state: string | null; query: string }>(
        `SELECT application_name, state, left(query, 80) AS query FROM pg_stat_activity
          WHERE datname = $1 AND backend_type = 'client backend' AND application_name <> $2
            AND application_name NOT LIKE 'citus_internal%'`,
        [database.name, TEST_APPLICATION_NAME],
      );
      const left = rows.map((row) => `${row.application_name || "unnamed"} (${row.state ?? "?"}: ${row.query})`);
      if (left.length > 0) throw new Error(`still connected: ${left.join("; ")}`);
    },
    { timeoutMs, label: `closing every connection to the test database ${database.name}` },
  );
}

/**
 * Makes every test of the file fail that leaves something open. Call it at the top level of the file and after every `afterEach`
 * of that level: hooks run in the order they are declared, those of inner `describe` blocks first.
 *
 * @param scope `block`, after `useServices("block")`: what the tests of the block leave open together, at its end
 */
export function failOnLeaks(scope: "test" | "block" = "test"): void {
  let before: OpenResources | undefined;
  (scope === "test" ? beforeEach : beforeAll)(() => {
    before = openResources();
  });
  (scope === "test" ? afterEach : afterAll)(async () => {
    if (before !== undefined) await assertNothingLeft(before);
  });
}
