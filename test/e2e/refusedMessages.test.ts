import { expect, test } from "@jest/globals";
import { type BrokerEnd, sharedEnd } from "../support/brokerEnds/index.ts";
import { describeWith, START_TIMEOUT_MS } from "../support/brokers/index.ts";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { useServices } from "../support/service.ts";

const KINDS = ["rabbitmq", "kafka", "nats"] as const;
const BAD = 8;
const GOOD = 20;
/** Refused messages are offered again every ten seconds. */
const PATIENCE = { timeoutMs: 30_000 };

describeWith(KINDS, "messages that a trigger on the inbox refuses in every form", () => {
  const services = useServices();

  test(
    "stay with their broker, hold up no other message, and arrive when the trigger lets them pass",
    async () => {
      const receiver = await services.receiver();
      const ends: BrokerEnd[] = [];
      services.defer(() => Promise.all(ends.map((end) => end[Symbol.asyncDispose]())));
      for (const kind of KINDS) ends.push(await sharedEnd(kind));
      const database = await services.database();
      const source = (end: BrokerEnd) => [end.kind, { ...end.source, topic: "all" }];
      const config = {
        sources: Object.fromEntries([
          ...ends.map(source),
          ["http", { path: "/orders", idempotencyKeyPath: "$.id", topic: "all" }],
        ]),
        destinations: { receiver: { baseUrl: receiver.url } },
        routes: [{ topicPattern: "all", destination: "receiver" }],
      };
      const svc = await services.start({ database, config });
      await refuse(database, "NEW.state = 'dead' OR NEW.payload LIKE '%bad%'");
      await database.query("CREATE TRIGGER refuse BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION refuse()");

      const sent = (from: string, what: string, count: number) =>
        Array.from({ length: count }, (_, n) => ({
          key: `${what}-${n}`,
          body: JSON.stringify({ id: `${from}-${what}-${n}` }),
        }));
      for (const end of ends) {
        await end.send(sent(end.kind, "bad", BAD));
        await end.send(sent(end.kind, "good", GOOD));
      }
      expect((await svc.post({ id: "http-bad-0" })).status).toBe(500);
      expect((await svc.post({ id: "http-good-0" })).status).toBe(202);

      const arrived = () => receiver.requests.map(({ body }) => (JSON.parse(body.toString()) as { id: string }).id);
      const of = (kind: string, what: string) =>
        new Set(arrived().filter((id) => id.startsWith(`${kind}-${what}-`))).size;
      for (const kind of ["rabbitmq", "nats"]) {
        await eventually(async () => expect([kind, of(kind, "good")]).toEqual([kind, GOOD]), PATIENCE);
      }
      expect(arrived().filter((id) => id.includes("-bad-"))).toEqual([]);
      expect((await svc.readiness()).verdict).toBe("healthy");
      expect(await svc.metric("svc_inbox_rejections_total")).toBeGreaterThan(0);

      // A message that is tried as a dead row at this moment must not pass as one.
      await refuse(database, "NEW.state = 'dead'");
      for (const kind of KINDS) {
        await eventually(
          async () => expect([kind, of(kind, "bad"), of(kind, "good")]).toEqual([kind, BAD, GOOD]),
          PATIENCE,
        );
      }
      expect(arrived().length).toBe(new Set(arrived()).size);
      expect(await database.query("SELECT state FROM inbox WHERE state = 'dead'")).toEqual([]);
      expect((await svc.stop()).code).toBe(0);
    },
    3 * START_TIMEOUT_MS,
  );
});

/** The function of a trigger that refuses the rows for which the condition holds. */
async function refuse(database: TestDatabase, condition: string): Promise<void> {
  await database.query(`CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF ${condition} THEN RAISE EXCEPTION 'not this one'; END IF;
      RETURN NEW;
    END $$`);
}
