import { beforeAll, expect, test } from "@jest/globals";
import type { TestDatabase } from "../../support/databases.ts";
import { describeWithTools } from "../../support/describeWithTools.ts";
import { eventually } from "../../support/eventually.ts";
import type { Target } from "../../support/prometheus.ts";
import { type ConfigTree, type Service, useServices } from "../../support/service.ts";
import { useAlerts } from "./useAlerts.ts";

/** Alerts of processes that are missing. */

describeWithTools(["prometheus"], "Prometheus over a fleet of roles beside another installation", () => {
  const services = useServices("block");
  const alerts = useAlerts(services, "fleet");
  const { active, fires, ends } = alerts;
  const INSTALLATION = { namespace: "fleet", job: "svc" };
  const ROLES = ["ingest", "relay", "poller", "admin"];
  let fleet: Map<string, { readonly target: Target; service: Service }>;
  let own: TestDatabase;

  const config: ConfigTree = {
    database: { poolSize: 4 },
    sources: { orders: { path: "/orders", idempotencyKeyPath: "$.id", topic: "ok" } },
    destinations: { nobody: { baseUrl: "http://127.0.0.1:9" } },
    routes: [{ topicPattern: "**", destination: "nobody" }],
    admin: { enabled: true, auth: { token: "admin-token" } },
  };
  const start = async (role: string) => {
    const service = await services.start({ database: own, config, roles: [role] });
    fleet.set(role, { service, target: { port: service.port, labels: { ...INSTALLATION, instance: role } } });
  };
  const kill = async (...roles: readonly string[]) => {
    await Promise.all(roles.map((role) => fleet.get(role)?.service.kill()));
  };
  /** Scrapes the fleet, without the roles that are left out, and the other installation. */
  const scrape = (...without: readonly string[]) => {
    const targets = [...fleet].filter(([role]) => !without.includes(role)).map(([, { target }]) => target);
    alerts.prometheus.scrape([...others, ...targets]);
  };
  let others: readonly Target[];

  beforeAll(async () => {
    own = await services.database();
    const other = await services.start({ database: await services.database(), config });
    others = [{ port: other.port, labels: { namespace: "other", job: "svc", instance: "other" } }];
    fleet = new Map();
    await start("ingest");
    await Promise.all(ROLES.slice(1).map(start));
    scrape();
    await alerts.shows('svc_role_info{namespace="fleet"}', ROLES.length);
  }, 60_000);

  test("SvcNoIngest and SvcReplicaDown: the only ingest is killed", async () => {
    await kill("ingest");
    const { annotations } = await fires("SvcNoIngest", INSTALLATION);
    const down = await fires("SvcReplicaDown", { instance: "ingest" });
    expect(annotations.description).toBe(
      "3 svc processes run, and none of them has the role ingest any more: nothing is received.",
    );
    expect(down.annotations.description).toBe(
      "ingest does not answer the scrape (up = 0). No process has its role any more: ingest.",
    );
    expect(await active("SvcDown")).toEqual([]);
    await start("ingest");
    scrape();
    await ends("SvcNoIngest");
    await ends("SvcReplicaDown");
  });

  test("SvcNoPoller, SvcNoRelay and SvcRoleGone: their pods are gone with their targets", async () => {
    await kill("poller", "relay", "admin");
    scrape("poller", "relay", "admin");
    await fires("SvcNoPoller", INSTALLATION);
    await fires("SvcNoRelay", INSTALLATION);
    await fires("SvcRoleGone", { ...INSTALLATION, role: "admin" });
    await Promise.all(["poller", "relay", "admin"].map(start));
    scrape();
    await ends("SvcNoPoller");
    await ends("SvcNoRelay");
    await ends("SvcRoleGone");
  });

  test("last_error of a receiver that is away reads as in the runbook", async () => {
    await own.query("INSERT INTO outbox (topic, payload) VALUES ('ok', '{}')");
    await eventually(async () =>
      expect(await own.query("SELECT last_error FROM outbox WHERE last_error IS NOT NULL")).toEqual([
        {
          last_error: "POST http://127.0.0.1:9/, waiting for a connection, failed (connect ECONNREFUSED 127.0.0.1:9)",
        },
      ]),
    );
  });

  test("SvcDown: every process is killed, and SvcAbsent: their targets are gone, too", async () => {
    await kill(...ROLES);
    await fires("SvcDown", INSTALLATION);
    expect(await active("SvcAbsent", INSTALLATION)).toEqual([]);
    scrape(...ROLES);
    const { annotations } = await fires("SvcAbsent", INSTALLATION);
    await ends("SvcDown");
    await ends("SvcReplicaDown");
    expect(annotations.summary).toBe("No svc process of svc is scraped");
    await Promise.all(ROLES.map(start));
    scrape();
    await ends("SvcAbsent", INSTALLATION);
    // The other installation had nothing to do with any of it.
    expect((await alerts.prometheus.alerts()).filter(({ labels }) => labels.namespace === "other")).toEqual([]);
  });

  alerts.testCoverage();
});
