import { expect, test } from "@jest/globals";
import { START_TIMEOUT_MS } from "../support/brokers/index.ts";
import { describeWithPgbouncer } from "../support/describeWithPgbouncer.ts";
import { eventually } from "../support/eventually.ts";
import { History } from "../support/history.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { startPgbouncer } from "../support/pgbouncer.ts";
import { ordersTo, useServices } from "../support/service.ts";
import { acknowledged, allDelivered, record, sendTraffic } from "../support/traffic.ts";

const services = useServices();
failOnLeaks();

/** Two claims of 100 rows may wait in a replica. */
const UNSETTLED_AT_MOST = 200;

describeWithPgbouncer("PgBouncer between two replicas and the database", () => {
  test(
    "killed and started again in mid-traffic, and again, it loses nothing and breaks no order",
    async () => {
      const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
      const pooler = await startPgbouncer(database);
      services.defer(() => pooler[Symbol.asyncDispose]());
      const pooled = { ...database, jdbcUrl: `jdbc:postgresql://${pooler.host}:${pooler.port}/${database.name}` };
      // A claim whose answer was lost with the pooler is taken back when its lease is over: here soon.
      const config = ordersTo(receiver, { outbox: { claimTimeoutMs: 5000 } });
      const replicas = await Promise.all([1, 2].map(() => services.start({ database: pooled, config })));
      const history = new History();
      record(receiver, history);

      const sending = sendTraffic({ history, to: replicas, keys: 16, messagesPerKey: 60 });
      for (const count of [100, 300, 500]) {
        await acknowledged(history, count, 30_000);
        await pooler.kill();
        for (const replica of replicas) {
          await eventually(async () =>
            expect((await replica.readiness()).components).toMatchObject({ database: "down" }),
          );
        }
        await pooler.start();
      }
      await sending;
      await allDelivered(history, 40_000);

      const repeated = history.repeated.map(({ id }) => id);
      expect(repeated.length).toBeLessThanOrEqual(replicas.length * UNSETTLED_AT_MOST);
      history.mayRepeat(repeated);
      expect(history.violations()).toEqual([]);
      for (const replica of replicas) expect(await replica.stop()).toEqual({ code: 0, signal: null });
    },
    START_TIMEOUT_MS,
  );
});
