import { expect, test } from "@jest/globals";
import pg from "pg";
import { cellOf } from "../../src/model/cells.ts";
import { TEST_APPLICATION_NAME } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { ordersTo, useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

const CELLS = 4;
const POOL_SIZE = 4;
const KEYS = Array.from({ length: 40 }, (_, n) => `key-${n}`);
const bodyOf = (key: string) => ({ id: `of-${key}`, key, type: "created" });
const WAITING = `SELECT count(DISTINCT pid)::int AS count FROM pg_locks WHERE NOT granted AND relation IN ('public_0.inbox'::regclass, 'public_0.outbox'::regclass)`;

test("a schema that hangs takes half of the shared connections, and the other cells receive and deliver", async () => {
  const [receiver, database] = [await services.receiver(), await services.database()];
  const service = await services.start({
    database,
    config: ordersTo(receiver, { database: { cells: CELLS, poolSize: POOL_SIZE } }),
  });
  const holder = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
  await holder.connect();
  services.defer(() => holder.end());
  await holder.query("BEGIN; LOCK TABLE public_0.inbox, public_0.outbox IN ACCESS EXCLUSIVE MODE");
  const [hanging, others] = [0, 1].map((isOther) =>
    KEYS.filter((key) => Math.min(cellOf(key, CELLS), 1) === isOther),
  ) as [string[], string[]];
  const waiting = async () => (await database.query<{ count: number }>(WAITING))[0]?.count;

  const held = hanging.map((key) => service.post(bodyOf(key)));
  await eventually(async () => expect(await waiting()).toBe(POOL_SIZE / 2));
  for (const key of others) expect((await service.post(bodyOf(key))).status).toBe(202);
  const delivered = () => receiver.requests.map(({ headers }) => headers["x-idempotency-key"]);
  await eventually(() => expect(delivered().toSorted()).toEqual(others.map((key) => `of-${key}`).toSorted()));

  await holder.query("ROLLBACK");
  for (const answer of held) expect((await answer).status).toBe(202);
  await eventually(() => expect(delivered()).toHaveLength(KEYS.length));
}, 90_000);
