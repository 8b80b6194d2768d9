import { expect, test } from "@jest/globals";
import { Database } from "../support/chaos/database.ts";
import { NEEDS_COMPILER } from "../support/chaos/databaseClock.ts";
import { describeWhere } from "../support/describeWhere.ts";
import { eventually } from "../support/eventually.ts";
import { History } from "../support/history.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { ordersTo, useServices } from "../support/service.ts";
import { allDelivered, sendTraffic } from "../support/traffic.ts";

const services = useServices();
failOnLeaks();

/** A delivery in ten takes so long, in ms, that each jump finds some. */
const SLOW_MS = 1500;
/** Messages between two jumps: they take more than a second, after which pollers look for expired claims. */
const BETWEEN = 800;
/** Seconds; the clock is right at first. */
const OFFSETS = [60, 0, -600, 0, 600];

describeWhere(NEEDS_COMPILER, "while the clock of the database jumps ahead, and back", () => {
  test("no replica takes over what another one delivers: nothing is lost, reordered or repeated", async () => {
    const database = await Database.start(services, true);
    const receiver = await services.receiver();
    const history = new History();
    let received = 0;
    receiver.answer = ({ body }, response) => {
      const { id } = JSON.parse(body.toString("utf8")) as { id: string };
      history.received(id);
      received += 1;
      setTimeout(() => response.writeHead(200).end(), received % 10 === 0 ? SLOW_MS : 0);
    };
    const config = ordersTo(receiver, { outbox: { concurrency: 16 } });
    const { host, name, user, password } = database.account;
    const address = { jdbcUrl: `jdbc:postgresql://${host}:${database.port}/${name}`, user, password };
    const replicas = [];
    for (let n = 0; n < 3; n += 1) replicas.push(await services.start({ database: address, config }));

    const jumps = async () => {
      for (const offset of [...OFFSETS, undefined]) {
        // The next jump finds rows that were claimed under the present clock, and what the last one repeats has come.
        const before = received;
        await eventually(() => received >= before + BETWEEN, { timeoutMs: 60_000 });
        if (offset !== undefined) database.clock?.step(offset);
      }
    };
    const jumping = jumps();
    await sendTraffic({ history, to: replicas, keys: 60, messagesPerKey: 1, until: jumping, mostUndelivered: 300 });
    await jumping;
    await allDelivered(history, 30_000);
    expect(history.repeated).toEqual([]);
    expect(history.violations()).toEqual([]);
  }, 120_000);
});
