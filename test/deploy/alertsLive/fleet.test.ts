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
  // Slower than elsewhere: a busy process that misses the time of a scrape or two is not gone.
  const alerts = useAlerts(services, "fleet", { scrapeMs: 750, factor: 120 });
  const { active, fires, ends } = alerts;
  const INSTALLATION = { namespace: "fleet", job: "svc" };
  /** The roles of each process. */
  const FLEET = { ingest: ["ingest"], delivery: ["relay", "poller"], admin: ["admin"] } as const;
  type Name = keyof typeof FLEET;
  const NAMES = Object.keys(FLEET) as readonly Name[];
  const fleet = new Map<Name, { readonly target: Target; readonly service: Service }>();
  let own: TestDatabase;

  const config: ConfigTree = {
    database: { poolSize: 4 },
    sources: { orders: { path: "/orders", idempotencyKeyPath: "$.id", topic: "ok" } },
    destinations: { nobody: { baseUrl: "http://127.0.0.1:9" } },
    routes: [{ topicPattern: "**", destination: "nobody" }],
    admin: { enabled: true, auth: { token: "admin-token" } },
  };
  const start = async (name: Name) => {
    const service = await services.start({ database: own, config, roles: FLEET[name] });
    fleet.set(name, { service, target: { port: service.port, labels: { ...INSTALLATION, instance: name } } });
  };
  const kill = async (...names: readonly Name[]) => {
    await Promise.all(names.map((name) => fleet.get(name)?.service.kill()));
  };
  /** Scrapes these processes of the fleet, and the other installation. */
  const scrape = (...names: readonly Name[]) => {
    const targets = [...fleet].filter(([name]) => names.includes(name)).map(([, { target }]) => target);
    alerts.prometheus.scrape([...others, ...targets]);
  };
  let others: readonly Target[];

  beforeAll(async () => {
    own = await services.database();
    const other = await services.start({ database: await services.database(), config });
    others = [{ port: other.port, labels: { namespace: "other", job: "svc", instance: "other" } }];
    await start("ingest");
    await Promise.all([start("delivery"), start("admin")]);
    scrape(...NAMES);
    await alerts.shows('svc_role_info{namespace="fleet"}', Object.values(FLEET).flat().length);
  }, 60_000);

  test("SvcNoIngest and SvcReplicaDown: the only ingest is killed", async () => {
    await kill("ingest");
    const { annotations } = await fires("SvcNoIngest", INSTALLATION);
    const down = await fires("SvcReplicaDown", { instance: "ingest" });
    expect(annotations.description).toBe(
      "2 svc processes run, and none of them has the role ingest any more: nothing is received.",
    );
    expect(down.annotations.description).toBe(
      "ingest does not answer the scrape (up = 0). No process has its role any more: ingest.",
    );
    expect(await active("SvcDown")).toEqual([]);
    await start("ingest");
    scrape(...NAMES);
    await ends("SvcNoIngest");
    await ends("SvcReplicaDown");
  });

  test("SvcNoPoller, SvcNoRelay and SvcRoleGone: their targets are gone, as with their pods", async () => {
    scrape("ingest");
    await fires("SvcNoPoller", INSTALLATION);
    await fires("SvcNoRelay", INSTALLATION);
    await fires("SvcRoleGone", { ...INSTALLATION, role: "admin" });
    scrape(...NAMES);
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
    await kill(...NAMES);
    await fires("SvcDown", INSTALLATION);
    expect(await active("SvcAbsent", INSTALLATION)).toEqual([]);
    scrape();
    const { annotations } = await fires("SvcAbsent", INSTALLATION);
    await ends("SvcDown");
    await ends("SvcReplicaDown");
    expect(annotations.summary).toBe("No svc process of svc is scraped");
    await start("ingest");
    scrape("ingest");
    await ends("SvcAbsent", INSTALLATION);
    // The other installation had nothing to do with any of it.
    expect((await alerts.prometheus.alerts()).filter(({ labels }) => labels.namespace === "other")).toEqual([]);
  });

  alerts.testCoverage();
});
