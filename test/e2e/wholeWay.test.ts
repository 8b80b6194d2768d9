import { expect, test } from "@jest/globals";
import { failOnLeaks } from "../support/leaks.ts";
import { ordersTo, useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

/** What `.ci/node-versions` runs on each version of Node.js. */
test("a message is received, changed by a transform in a worker, stored, relayed and delivered, and the service stops", async () => {
  const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const transform = { expression: '$merge([$, {"total": $sum(items.price)}])' };
  const config = ordersTo(receiver, { sources: { orders: { transform } } });
  const service = await services.start({ database, config });

  const body = { id: "m-1", type: "created", items: [{ price: 1.5 }, { price: 2 }] };
  const answer = await service.post(body);
  const [delivered] = await receiver.received(1);
  const ended = await service.stop();

  expect(answer.status).toBe(202);
  expect(JSON.parse(String(delivered?.body))).toEqual({ ...body, total: 3.5 });
  expect(ended).toEqual({ code: 0, signal: null });
  expect(await database.query("SELECT state, attempt FROM outbox")).toEqual([{ state: "sent", attempt: 0 }]);
});
