import { beforeAll, expect, test } from "@jest/globals";
import type { TestDatabase } from "../../support/databases.ts";
import { describeWithTools } from "../../support/describeWithTools.ts";
import { type Service, useServices } from "../../support/service.ts";
import { useAlerts, whileDoing } from "./useAlerts.ts";

/** Alerts of the inbox, over one process of every role. */

describeWithTools(["prometheus"], "Prometheus over a process that receives", () => {
  const services = useServices("block");
  const alerts = useAlerts(services, "inbox");
  const { fires, ends } = alerts;
  let database: TestDatabase;
  let service: Service;

  beforeAll(async () => {
    database = await services.database();
    const receiver = await services.receiver();
    const source = { idempotencyKeyPath: "$.id", topic: "ok" };
    const config = {
      inbox: { relay: { pendingGaugeIntervalMs: 100 } },
      sources: {
        orders: { ...source, path: "/orders" },
        guarded: { ...source, path: "/guarded", auth: { type: "bearer", token: "open" } },
      },
      destinations: { billing: { baseUrl: receiver.url } },
      routes: [{ topicPattern: "**", destination: "billing" }],
    };
    service = await services.start({ database, config });
    const labels = { namespace: "shop", job: "svc", instance: "one" };
    alerts.prometheus.scrape([{ port: service.port, labels }]);
    await alerts.shows("svc_info");
  }, 60_000);

  test("SvcReceiptsNotStored: the inbox table is away", async () => {
    await database.query("ALTER TABLE inbox RENAME TO inbox_away");
    await whileDoing(
      () => service.post({ id: "a" }),
      () => fires("SvcReceiptsNotStored"),
    );
    await database.query("ALTER TABLE inbox_away RENAME TO inbox");
    await ends("SvcReceiptsNotStored");
  });

  test("SvcReceiptsRefused: a sender with a wrong token", async () => {
    await whileDoing(
      () => service.post({ id: "a" }, { path: "/inbox/guarded" }),
      async () => {
        const { annotations } = await fires("SvcReceiptsRefused", { reason: "unauthorized" });
        expect(annotations.summary).toBe("Received messages are refused: unauthorized");
      },
    );
    await ends("SvcReceiptsRefused");
  });

  test("SvcInboxUnrelayed: a row of a source that nobody configured", async () => {
    await database.query("INSERT INTO inbox (source, idempotency_key, payload) VALUES ('gone', 'a', '{}')");
    await fires("SvcInboxUnrelayed");
    await database.query("DELETE FROM inbox WHERE source = 'gone'");
    await ends("SvcInboxUnrelayed");
  });

  test("SvcInboxLate: the inbox table refuses every change of a row", async () => {
    await database.query(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$`);
    await database.query("CREATE TRIGGER refuse BEFORE UPDATE ON inbox FOR EACH ROW EXECUTE FUNCTION refuse()");
    await database.query(
      `INSERT INTO inbox (source, idempotency_key, payload, created_at, scheduled_at)
       VALUES ('orders', 'old', '{}', now() - interval '1 hour', now() - interval '1 hour')`,
    );
    const { annotations } = await fires("SvcInboxLate");
    // The relay leaves a row that was refused alone for half a minute.
    await database.query("DROP FUNCTION refuse CASCADE");
    await ends("SvcInboxLate");
    expect(annotations.description).toMatch(/^The oldest push row of the inbox has waited for 1h 0m \d+s\.$/);
  });

  alerts.testCoverage();
});
