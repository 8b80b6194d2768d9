import { beforeAll, expect, test } from "@jest/globals";
import pg from "pg";
import { TEST_APPLICATION_NAME, type TestDatabase } from "../../support/databases.ts";
import { describeWithTools } from "../../support/describeWithTools.ts";
import { freePort } from "../../support/ports.ts";
import { statementsOf } from "../../support/runbook.ts";
import { type Service, useServices } from "../../support/service.ts";
import { useAlerts, whileDoing } from "./useAlerts.ts";

/** Alerts of the inbox and of retention, over one process of every role. */

describeWithTools(["prometheus"], "Prometheus over a process that receives and cleans up", () => {
  const services = useServices("block");
  const alerts = useAlerts(services, "inbox", {
    thresholds: [{ alert: "SvcRetentionNotRunning", text: "> 6 * 3600", with: "> 4" }],
  });
  const { fires, ends } = alerts;
  let database: TestDatabase;
  let start: () => Promise<Service>;
  let service: Service;

  beforeAll(async () => {
    database = await services.database();
    const receiver = await services.receiver();
    const source = { idempotencyKeyPath: "$.id", topic: "ok" };
    const policy = { policy: "AGE", maxAge: "14d", cleanupInterval: "1s" };
    const config = {
      retention: { enabled: true, outbox: policy, inbox: policy },
      inbox: { relay: { pendingGaugeIntervalMs: 100 } },
      sources: {
        orders: { ...source, path: "/orders" },
        untyped: { ...source, path: "/untyped", topic: "{{ eventType }}", eventTypePath: "$.type" },
        guarded: { ...source, path: "/guarded", auth: { type: "bearer", token: "open" } },
      },
      destinations: { billing: { baseUrl: receiver.url } },
      routes: [{ topicPattern: "**", destination: "billing" }],
    };
    const port = await freePort();
    start = () => services.start({ database, config, port });
    service = await start();
    const labels = { namespace: "shop", job: "svc", instance: "one" };
    alerts.prometheus.scrape([{ port, labels }]);
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
        const { annotations } = await fires("SvcReceiptsRefused", { source: "guarded", reason: "credentials" });
        expect(annotations.summary).toBe("The source guarded refuses messages: credentials");
      },
    );
    await ends("SvcReceiptsRefused");
  });

  test("SvcInboxDead: a message without the event type that is its topic", async () => {
    const [look = ""] = statementsOf("docs/runbook.md", "SvcInboxDead");
    expect((await service.post({ id: "a" }, { path: "/inbox/untyped" })).status).toBe(202);
    const { annotations } = await fires("SvcInboxDead", { reason: "topic_empty" });
    expect(annotations.summary).toBe("Received messages died in the inbox: topic_empty");
    expect(await database.query(look)).toMatchObject([
      { source: "untyped", last_error: "the topic template renders empty", count: "1" },
    ]);
    await ends("SvcInboxDead");
  });

  test("SvcInboxUnrelayed: a row of a source that nobody configured", async () => {
    await database.query("INSERT INTO inbox (source, idempotency_key, payload) VALUES ('gone', 'a', '{}')");
    await fires("SvcInboxUnrelayed");
    await database.query("DELETE FROM inbox WHERE source = 'gone'");
    await ends("SvcInboxUnrelayed");
  });

  test("SvcInboxLate: the relay waits for a transaction that holds the outbox table", async () => {
    const holder = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
    await holder.connect();
    services.defer(() => holder.end());
    await holder.query("BEGIN; LOCK TABLE outbox IN SHARE MODE");
    await database.query(
      `INSERT INTO inbox (source, idempotency_key, payload, created_at, scheduled_at)
       VALUES ('orders', 'old', '{}', now() - interval '1 hour', now() - interval '1 hour')`,
    );
    const { annotations } = await fires("SvcInboxLate");
    await holder.query("ROLLBACK");
    await ends("SvcInboxLate");
    expect(annotations.description).toMatch(/^The oldest push row of the inbox has waited for 1h 0m \d+s\.$/);
  });

  test("SvcRetentionNotRunning: the process of retention is stopped", async () => {
    const [look = ""] = statementsOf("docs/runbook.md", "SvcRetentionNotRunning");
    await database.query("DELETE FROM outbox");
    await database.query("INSERT INTO outbox (topic, payload, state) VALUES ('ok', '{}', 'sent')");
    await alerts.shows('time() - svc_cleanup_last_run_timestamp_seconds{table="outbox"} < 3');
    await service.stop();
    const { annotations } = await fires("SvcRetentionNotRunning", { table: "outbox" });
    await fires("SvcRetentionNotRunning", { table: "inbox" });
    const rows = await database.query(look);
    service = await start();
    await ends("SvcRetentionNotRunning");
    expect(annotations.description).toMatch(/^The last finished run over the outbox was \S+s ago\. The table grows\.$/);
    expect(rows).toEqual([{ state: "sent", count: "1", oldest: expect.any(Date) }]);
  });

  alerts.testCoverage();
});
