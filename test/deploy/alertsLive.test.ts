import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "@jest/globals";
import type { TestDatabase } from "../support/databases.ts";
import { describeWithTools } from "../support/describeWithTools.ts";
import { eventually } from "../support/eventually.ts";
import { type ActiveAlert, type Prometheus, shortened, startPrometheus, type Target } from "../support/prometheus.ts";
import type { Receiver } from "../support/receiver.ts";
import { read } from "../support/repository.ts";
import { type ConfigTree, databaseConfig, type Service, useServices } from "../support/service.ts";
import { alertRules, dashboard } from "./deployFiles.ts";

/** A real Prometheus that scrapes real processes: each alert is caused, fires, and ends when its cause does; each query of the dashboard gives series. */

/** Five minutes take a second, an hour twelve. */
const FACTOR = 300;
const RULES = shortened(read("deploy/prometheus/alerts.yml"), FACTOR);

/** What is fired by promtool alone, and why. */
const NOT_LIVE: Readonly<Record<string, string>> = {
  SvcRestarting: "three starts of a process take longer than the shortened half hour",
  SvcSourceDisconnected: "needs a broker",
  SvcDatabasePoolExhausted:
    "while the database hangs, a scrape takes up to three seconds, longer than the shortened interval",
  SvcEventLoopBlocked: "a process that stands still does not answer the scrape that would say so",
  SvcRetentionNotRunning: "its threshold is six hours since a timestamp of the process",
  SvcCaptureLag: "its threshold is half a minute between a commit and its capture",
  SvcReplicationSlotLag: "needs gigabytes of a database's log",
  SvcReplicationSlotLost: "needs a server whose log is limited",
  SvcPodsNotStarting: "needs kube-state-metrics",
  SvcRetentionJobFailed: "needs kube-state-metrics",
};
const caused = new Set<string>();

const CREATE_OLD = `INSERT INTO outbox (topic, key, payload, created_at)
  SELECT $1, $1 || n, '{}', now() - interval '2 hours' FROM generate_series(1, $2::int) n`;

/** A query of the dashboard as Grafana sends it. */
function filled(query: string, variables: Readonly<Record<string, string>>): string {
  return query
    .replaceAll("$__rate_interval", "1m")
    .replaceAll("$__range", "3h")
    .replace(/\$(\w+)/g, (_, name: string) => variables[name] ?? "");
}

describeWithTools(["prometheus"], "Prometheus over real processes", () => {
  const services = useServices("block");
  let prometheus: Prometheus;
  let database: TestDatabase;

  beforeAll(async () => {
    prometheus = await startPrometheus(RULES);
    services.defer(() => prometheus.close());
    database = await services.database();
  }, 60_000);

  const active = async (alert: string, labels: Readonly<Record<string, string>> = {}) =>
    (await prometheus.alerts()).filter(
      (each) =>
        each.labels.alertname === alert && Object.entries(labels).every(([name, value]) => each.labels[name] === value),
    );

  /** Waits until the alert fires, and gives it. */
  const fires = async (alert: string, labels?: Readonly<Record<string, string>>): Promise<ActiveAlert> => {
    caused.add(alert);
    const label = `${alert} with ${JSON.stringify(labels ?? {})} fires`;
    return eventually(
      async () => {
        const [found] = (await active(alert, labels)).filter(({ state }) => state === "firing");
        if (found === undefined) throw new Error(`active: ${JSON.stringify(await prometheus.alerts())}`);
        return found;
      },
      { timeoutMs: 40_000, intervalMs: 50, label },
    );
  };
  const ends = (alert: string, labels?: Readonly<Record<string, string>>): Promise<void> =>
    eventually(async () => expect(await active(alert, labels)).toEqual([]), {
      timeoutMs: 40_000,
      intervalMs: 50,
      label: `${alert} ends`,
    });

  /** Does something again and again, every 25 ms, until `body` has ended. */
  const whileDoing = async (action: () => Promise<unknown>, body: () => Promise<unknown>): Promise<void> => {
    let isOver = false;
    const doing = (async () => {
      while (!isOver) {
        await action();
        await new Promise((resolve) => setTimeout(resolve, 25));
      }
    })();
    try {
      await body();
    } finally {
      isOver = true;
      await doing;
    }
  };

  describe("one process of every role", () => {
    const INSTALLATION = { namespace: "shop", job: "svc" };
    let service: Service;
    let receiver: Receiver;
    let limited: Receiver;
    let config: ConfigTree;

    const slot = `alerts_${randomUUID().replaceAll("-", "")}`;
    const insert = (topic: string, count = 1) =>
      database.query(
        "INSERT INTO outbox (topic, key, payload) SELECT $1, $1 || gen_random_uuid(), '{}' FROM generate_series(1, $2::int)",
        [topic, count],
      );
    /** Runs `svc` with the configuration of the installation. */
    const command = async (...args: readonly string[]) => {
      const child = services.processes.svc([...args, "--config", services.configFile(config)]);
      expect([await child.exited, child.lines]).toEqual([{ code: 0, signal: null }, expect.anything()]);
    };
    const empty = () => database.query("DELETE FROM outbox WHERE state = 'pending'");

    beforeAll(async () => {
      receiver = await services.receiver();
      limited = await services.receiver();
      config = {
        database: { ...databaseConfig(database), poolSize: 6 },
        outbox: {
          pendingGaugeIntervalMs: 100,
          pollIntervalMs: 100,
          retryBaseDelayMs: 100,
          capture: { mode: "postgres-logical", enabled: true, stateDirectory: services.folder(), slot },
        },
        inbox: { relay: { pendingGaugeIntervalMs: 100 } },
        sources: {
          orders: { path: "/orders", idempotencyKeyPath: "$.id", topic: "ok" },
          guarded: {
            path: "/guarded",
            idempotencyKeyPath: "$.id",
            topic: "ok",
            auth: { type: "bearer", token: "open" },
          },
        },
        destinations: {
          billing: { baseUrl: receiver.url, retry: { schedule: ["1s"] }, maxAttempts: 1000 },
          breaking: {
            baseUrl: receiver.url,
            retry: { schedule: ["1s"] },
            maxAttempts: 1000,
            circuitBreaker: { minimumAttempts: 2, openMs: 200, maxOpenMs: 400 },
          },
          slow: { baseUrl: limited.url, rateLimit: { perSecond: 1, burst: 1 } },
          once: { baseUrl: receiver.url, maxAttempts: 1 },
          blocking: { baseUrl: receiver.url, retry: { schedule: ["1h"] } },
          skipping: {
            baseUrl: receiver.url,
            transform: { expression: '$error("no")', onError: "Skip" },
          },
        },
        retention: { enabled: true, outbox: { policy: "AGE", maxAge: "14d" } },
        routes: [
          { topicPattern: "parking", destination: "once", onExhausted: "park" },
          { topicPattern: "once", destination: "once" },
          ...["breaking", "slow", "blocking", "skipping"].map((name) => ({ topicPattern: name, destination: name })),
          { topicPattern: "**", destination: "billing" },
        ],
      };
      services.defer(() =>
        database.query("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1", [
          slot,
        ]),
      );
      service = await services.start({ database, config });
      const target: Target = { port: service.port, labels: { ...INSTALLATION, instance: "one" } };
      prometheus.scrape([target]);
      await eventually(async () => expect(await prometheus.query("svc_info")).toHaveLength(1));
      // Whatever fires for a Prometheus without any process must have ended.
      await ends("SvcAbsent");
    }, 60_000);

    test("SvcCaptureDown: there is no publication", async () => {
      const { annotations } = await fires("SvcCaptureDown", { instance: "one" });
      await database.query("CREATE PUBLICATION svc_outbox FOR TABLE outbox (id) WITH (publish = 'insert')");
      await ends("SvcCaptureDown");
      expect(annotations.description).toContain("Delivery goes on by polling.");
      await insert("ok");
      await eventually(async () => expect(await prometheus.query("svc_capture_lag_seconds")).toHaveLength(1));
    });

    test("SvcNotReady: the outbox table is away", async () => {
      await database.query("ALTER TABLE outbox RENAME TO outbox_away");
      const { annotations } = await fires("SvcNotReady", { component: "outbox-poller" });
      await database.query("ALTER TABLE outbox_away RENAME TO outbox");
      await ends("SvcNotReady");
      expect(annotations.summary).toBe("svc is not ready: outbox-poller is down");
    });

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

    test("SvcDestinationFailing and SvcBlockedKeys: the receiver answers 500", async () => {
      receiver.answer = { status: 500 };
      await insert("blocking");
      await whileDoing(
        () => insert("billing"),
        async () => {
          const { annotations } = await fires("SvcDestinationFailing", { destination: "billing" });
          expect(annotations.description).toBe("100% of the deliveries to billing fail.");
          await fires("SvcBlockedKeys");
        },
      );
      const [failed] = await database.query(
        "SELECT last_error FROM outbox WHERE topic = 'billing' AND attempt > 0 LIMIT 1",
      );
      receiver.answer = { status: 200 };
      await empty();
      await ends("SvcDestinationFailing");
      await ends("SvcBlockedKeys");
      // As the runbook quotes it.
      expect(failed?.last_error).toBe(`POST ${receiver.url}/ was answered 500`);
    });

    test("SvcCircuitBreakerOpen: the receiver answers 503 to the probes, too", async () => {
      receiver.answer = { status: 503 };
      await insert("breaking", 20);
      await fires("SvcCircuitBreakerOpen", { destination: "breaking" });
      receiver.answer = { status: 200 };
      await ends("SvcCircuitBreakerOpen");
      await eventually(async () =>
        expect(await database.query("SELECT FROM outbox WHERE topic = 'breaking' AND state <> 'sent'")).toEqual([]),
      );
    });

    test("SvcDeadMessages: a message uses its attempts up", async () => {
      receiver.answerNext({ status: 500 });
      await insert("once");
      await fires("SvcDeadMessages");
      await ends("SvcDeadMessages");
    });

    test("SvcParkedRows: a message of a route that parks uses its attempts up", async () => {
      receiver.answerNext({ status: 500 });
      await insert("parking");
      await fires("SvcParkedRows");
      await empty();
      await ends("SvcParkedRows");
    });

    test("SvcTransformsFailing: an expression fails, and the body goes out untransformed", async () => {
      await insert("skipping");
      await fires("SvcTransformsFailing", { strategy: "Skip" });
      await ends("SvcTransformsFailing");
    });

    test("SvcDestinationPaused: an operator pauses it; its rows are not late", async () => {
      await command("destinations", "pause", "billing", "--reason", "maintenance");
      const paused = 'svc_destination_state{destination="billing", state="paused"} == 1';
      await eventually(async () => expect(await prometheus.query(paused)).toHaveLength(1));
      await database.query(CREATE_OLD, ["billing", 3]);
      const { annotations } = await fires("SvcDestinationPaused", { destination: "billing" });
      expect(await active("SvcOutboxLate")).toEqual([]);
      expect(await active("SvcDestinationLate")).toEqual([]);
      await command("destinations", "resume", "billing");
      await ends("SvcDestinationPaused");
      expect(annotations.description).toContain("3 rows wait for billing");
    });

    test("SvcOutboxLate, SvcOutboxStuck and SvcDestinationLate: a rate limit holds old rows back", async () => {
      await database.query(CREATE_OLD, ["slow", 500]);
      const { annotations } = await fires("SvcDestinationLate", { destination: "slow" });
      await fires("SvcOutboxLate");
      await fires("SvcOutboxStuck");
      await empty();
      await ends("SvcDestinationLate");
      await ends("SvcOutboxLate");
      await ends("SvcOutboxStuck");
      expect(annotations.description).toMatch(/^The oldest due row for slow is 2h 0m \d+s old\. State: ok\.$/);
    });

    test("SvcDestinationRateLimited: more comes than the rate limit lets through", async () => {
      await whileDoing(
        () => insert("slow", 3),
        () => fires("SvcDestinationRateLimited", { destination: "slow" }),
      );
      await empty();
      await ends("SvcDestinationRateLimited");
    });

    test("SvcClaimsLost: a row is taken back while its delivery runs", async () => {
      let answer = () => {};
      const after = new Promise<void>((resolve) => {
        answer = resolve;
      });
      const { length } = receiver.requests;
      receiver.answerNext({ status: 200, after });
      await insert("billing");
      await receiver.received(length + 1);
      await database.query("UPDATE outbox SET state = 'sent', claim_token = NULL WHERE state = 'processing'");
      answer();
      await fires("SvcClaimsLost", { component: "poller" });
      await ends("SvcClaimsLost");
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
        "INSERT INTO inbox (source, idempotency_key, payload, created_at) VALUES ('orders', 'old', '{}', now() - interval '1 hour')",
      );
      const { annotations } = await fires("SvcInboxLate");
      await database.query("DROP FUNCTION refuse CASCADE");
      await ends("SvcInboxLate");
      expect(annotations.description).toMatch(/^The oldest push row of the inbox has waited for 1h 0m \d+s\.$/);
    });

    describe("the dashboard", () => {
      test.each(
        dashboard().panels.flatMap(({ title, targets = [] }) =>
          targets.map(({ expr, refId }) => [`${title}, ${refId}`, expr] as const),
        ),
      )("%s gives what its panel shows", async (_, expr) => {
        const all = filled(expr, { namespace: ".*", job: ".*", instance: ".*", destination: ".*" });
        const own = filled(expr, { ...INSTALLATION, instance: "one", destination: "billing|slow|breaking" });
        const other = filled(expr, { namespace: "other", job: "svc", instance: "one", destination: ".*" });

        // Every panel: what happened in the tests before this one has touched them all.
        expect(await prometheus.query(all)).not.toEqual([]);
        expect(await prometheus.query(own)).not.toEqual([]);
        // Where a panel says 0 for nothing, it does so for another installation, too.
        const ofOther = (await prometheus.query(other)).map(({ value }) => value[1]);
        expect(ofOther).toEqual(expr.endsWith("or vector(0)") ? ["0"] : []);
      });

      test.each(
        dashboard().templating.list.flatMap(({ name, query }) =>
          typeof query === "string" ? [] : [[name, query.query]],
        ),
      )("the variable %s has values", async (name, query = "") => {
        const [, selector = "", label = ""] = /^label_values\((.+), (\w+)\)$/.exec(query) ?? [];
        const series = await prometheus.query(filled(selector, { namespace: ".*", job: ".*" }));
        const values = new Set(series.map(({ metric }) => metric[label]));
        const expected = { namespace: "shop", job: "svc", instance: "one", destination: "billing" };
        expect(values).toContain(expected[name as keyof typeof expected]);
      });
    });
  });

  describe("a fleet of roles beside another installation", () => {
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
      prometheus.scrape([...others, ...targets]);
    };
    let others: readonly Target[];

    beforeAll(async () => {
      own = await services.database();
      const other = await services.start({ database, config });
      others = [{ port: other.port, labels: { namespace: "other", job: "svc", instance: "other" } }];
      fleet = new Map();
      await start("ingest");
      await Promise.all(ROLES.slice(1).map(start));
      scrape();
      await eventually(async () =>
        expect(await prometheus.query('svc_role_info{namespace="fleet"}')).toHaveLength(ROLES.length),
      );
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
      expect((await prometheus.alerts()).filter(({ labels }) => labels.namespace === "other")).toEqual([]);
    });
  });

  test("every alert is caused here, or it is said why not", () => {
    const names = alertRules().map(({ alert }) => alert);
    expect([...caused, ...Object.keys(NOT_LIVE)].sort()).toEqual([...names].sort());
  });
});
