import { expect, test } from "@jest/globals";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { ordersTo, type Service, useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

const INSERT = "INSERT INTO outbox (topic, payload) VALUES ('orders.made', '{}')";

/** The name of the poller that watches the outbox; undefined while none does. */
async function watcher(database: TestDatabase): Promise<string | undefined> {
  const rows = await database.query<{ name: string }>(
    `SELECT a.application_name AS name FROM pg_locks l JOIN pg_stat_activity a USING (pid)
     WHERE l.locktype = 'advisory' AND l.granted AND a.datname = current_database()`,
  );
  return rows[0]?.name;
}

test("what the watching poller leaves undone another one does, whether that hangs, stops or is killed", async () => {
  const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const config = ordersTo(receiver);
  const pollers = new Map<string, Service>();
  const start = async (name: string) => {
    // Behind a pooler in transaction mode each poller polls for itself.
    const jdbcUrl = `${database.directJdbcUrl}${database.directJdbcUrl.includes("?") ? "&" : "?"}ApplicationName=${name}`;
    pollers.set(name, await services.start({ database: { ...database, jdbcUrl }, config, roles: ["poller"] }));
  };
  for (const name of ["one", "two"]) {
    await start(name);
    await eventually(async () => expect(await watcher(database)).toBe("one"));
  }

  // Its connections stay, and with them the lock.
  pollers.get("one")?.process.kill("SIGSTOP");
  await database.query(INSERT);
  await receiver.received(1);
  expect(await watcher(database)).toBe("one");

  await pollers.get("one")?.kill();
  await eventually(async () => expect(await watcher(database)).toBe("two"));
  await database.query(INSERT);
  await receiver.received(2);

  await start("three");
  expect(await watcher(database)).toBe("two");
  await pollers.get("two")?.stop();
  await eventually(async () => expect(await watcher(database)).toBe("three"));
  await database.query(INSERT);
  await receiver.received(3);
  const states = () => database.query<{ state: string }>("SELECT DISTINCT state FROM outbox");
  await eventually(async () => expect(await states()).toEqual([{ state: "sent" }]));
}, 90_000);
