import { describe, expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { refuse } from "../support/looseTables.ts";
import { ordersTo, useServices } from "../support/service.ts";

const services = useServices();
failOnLeaks();

/** A service that has delivered a message. */
async function delivering() {
  const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const service = await services.start({ database, config: ordersTo(receiver) });
  const post = async (id: string) => (await service.post({ id, key: "c-1", type: "created" })).status;
  expect(await post("m-0")).toBe(202);
  await receiver.received(1);
  const states = async () => {
    const of = async (table: string, order: string) =>
      (await database.query(`SELECT state FROM ${table} ORDER BY ${order}`)).map(({ state }) => state);
    return { inbox: await of("inbox", "created_at, id"), outbox: await of("outbox", "sequence") };
  };
  await eventually(async () => expect(await states()).toEqual({ inbox: ["processed"], outbox: ["sent"] }));
  const down = async (component: string) =>
    await eventually(async () => {
      const { status, components } = await service.readiness();
      expect([status, components[component]]).toEqual([503, "down"]);
      const reasons = service.process.lines.filter((line) => line.includes('"component is down"'));
      expect(reasons.at(-1)).toMatch(/SQLSTATE 54000.*the row is not to blame.*correct the table/);
    });
  const up = () => eventually(async () => expect((await service.readiness()).status).toBe(200));
  const received = () => receiver.requests.map(({ body }) => (JSON.parse(body.toString()) as { id: string }).id);
  const begin = (when: string, table: string, condition: string) =>
    refuse(database, when, table, condition, "USING ERRCODE = '54000'");
  const end = (table: string) => database.query(`DROP TRIGGER refuse ON ${table}`);
  return { receiver, post, states, down, up, received, begin, end };
}

describe("a table that refuses every row", () => {
  test("as the relay's keeps acknowledged messages until it takes them, in their order", async () => {
    const { receiver, post, states, down, up, received, begin, end } = await delivering();
    await begin("INSERT", "outbox", "true");
    for (const id of ["m-1", "m-2", "m-3"]) expect(await post(id)).toBe(202);
    await down("inbox-relay");
    expect(await states()).toEqual({ inbox: ["processed", "pending", "pending", "pending"], outbox: ["sent"] });

    await end("outbox");
    await receiver.received(4);
    expect(received()).toEqual(["m-0", "m-1", "m-2", "m-3"]);
    await up();
  });

  test("as that of receipts answers senders with 500, and is looked at until it takes rows again", async () => {
    const { post, down, up, begin, end } = await delivering();
    await begin("INSERT", "inbox", "true");
    expect([await post("m-1"), await post("m-2")]).toEqual([500, 500]);
    await down("database");

    await end("inbox");
    await up();
    expect([await post("m-1"), await post("m-1")]).toEqual([202, 200]);
  });

  test("as that of outcomes makes no row dead, and takes them in the end", async () => {
    const { receiver, post, states, down, up, received, begin, end } = await delivering();
    await begin("UPDATE", "outbox", "NEW.state NOT IN ('pending', 'processing')");
    expect(await post("m-1")).toBe(202);
    await receiver.received(2);
    await down("outbox-poller");
    expect((await states()).outbox).toEqual(["sent", "processing"]);

    await end("outbox");
    await eventually(async () => expect((await states()).outbox).toEqual(["sent", "sent"]));
    await up();
    expect(received()).toEqual(["m-0", "m-1"]);
  });
});
