import { setTimeout as sleep } from "node:timers/promises";
import { beforeAll, describe, expect, test } from "@jest/globals";
import pg from "pg";
import { TEST_APPLICATION_NAME, type TestDatabase } from "../../support/databases.ts";
import { describeWithTools } from "../../support/describeWithTools.ts";
import { eventually } from "../../support/eventually.ts";
import { statementsOf } from "../../support/runbook.ts";
import { ordersTo, type Service, useServices } from "../../support/service.ts";
import { useAlerts, whileDoing } from "./useAlerts.ts";

/** Alerts of a process that answers slowly: each has a Prometheus that gives a scrape time. */

const LABELS = { namespace: "shop", job: "svc", instance: "one" };
const NOBODY = { url: "http://127.0.0.1:9" };

describeWithTools(["prometheus"], "Prometheus over a process", () => {
  describe("whose connections are all in use", () => {
    const services = useServices("block");
    // A scrape checks the database, which takes 3 s while no connection is free.
    const alerts = useAlerts(services, "pool", { scrapeMs: 4000, factor: 60 });
    const [look = ""] = statementsOf("docs/runbook.md", "SvcDatabasePoolExhausted");
    let database: TestDatabase;
    let service: Service;

    beforeAll(async () => {
      database = await services.database();
      const config = ordersTo(NOBODY, { database: { poolSize: 2 } });
      service = await services.start({ database, config, roles: ["ingest", "relay"] });
      alerts.prometheus.scrape([{ port: service.port, labels: LABELS }]);
      await alerts.shows('svc_db_pool_connections{state="waiting"} == 0');
    }, 60_000);

    test("SvcDatabasePoolExhausted: statements wait for the lock of a transaction that stays open", async () => {
      const holder = new pg.Client({ connectionString: database.url, application_name: TEST_APPLICATION_NAME });
      // The runbook's end for its transaction ends its session.
      holder.on("error", () => {});
      await holder.connect();
      services.defer(() => holder.end());
      const { rows } = await holder.query("SELECT pg_backend_pid() AS pid");
      await holder.query("BEGIN");
      await holder.query("LOCK TABLE inbox");
      const post = (n: number) => service.post({ id: `${n}`, key: "k", type: "made" });
      const posts = Promise.all([1, 2, 3, 4].map(post));
      const { annotations } = await alerts.fires("SvcDatabasePoolExhausted", LABELS);
      // A statement that gave up waiting is sent again.
      const waiting = await eventually(async () => {
        const blocked = (await database.query(look)).filter(({ blocked_by }) => blocked_by.includes(rows[0].pid));
        expect(blocked[0]).toMatchObject({ state: "active", wait_event_type: "Lock" });
        return blocked;
      });
      await database.query("SELECT pg_terminate_backend($1)", [waiting[0]?.blocked_by[0]]);
      await posts;
      await alerts.ends("SvcDatabasePoolExhausted");
      expect(annotations.description).toMatch(/^\d+ callers in one wait for a database connection/);
    });

    alerts.testCoverage();
  });

  describe("whose event loop is blocked again and again", () => {
    const services = useServices("block");
    // Scrapes time out while the process stands still, as they do after 10 s with the defaults.
    const thresholds = [{ alert: "SvcEventLoopBlocked", text: "> 10", with: "> 1" }];
    const alerts = useAlerts(services, "eventLoop", { scrapeMs: 1000, factor: 40, thresholds });
    let service: Service;

    beforeAll(async () => {
      service = await services.start({
        database: await services.database(),
        config: ordersTo(NOBODY),
        roles: ["ingest"],
      });
      alerts.prometheus.scrape([{ port: service.port, labels: LABELS }]);
      // A busy machine may block it at its start.
      await alerts.shows("svc_event_loop_blocked_seconds_total");
      await alerts.ends("SvcEventLoopBlocked");
    }, 60_000);

    test("SvcEventLoopBlocked: it stands still for longer than a scrape may take", async () => {
      const block = async () => {
        service.process.kill("SIGSTOP");
        await sleep(1500);
        service.process.kill("SIGCONT");
      };
      const { annotations } = await whileDoing(block, () => alerts.fires("SvcEventLoopBlocked", LABELS), 1000);
      await alerts.ends("SvcEventLoopBlocked");
      expect(annotations.description).toMatch(
        /^one stood still for about \S+s of 5 minutes, over a second at a time\.$/,
      );
    });

    alerts.testCoverage();
  });
});
