import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "@jest/globals";
import type { TestDatabase } from "../../support/databases.ts";
import { describeWithTools } from "../../support/describeWithTools.ts";
import { eventually } from "../../support/eventually.ts";
import type { Receiver } from "../../support/receiver.ts";
import { type ConfigTree, type Service, useServices } from "../../support/service.ts";
import { insertDelivered } from "../../support/situations.ts";
import { dashboard } from "../deployFiles.ts";
import { useAlerts, whileDoing } from "./useAlerts.ts";

/** Alerts of the outbox and of readiness, over one process of every role; and the dashboard over what they left behind. */

const CREATE_OLD = `INSERT INTO outbox (topic, key, payload, created_at)
  SELECT $1, $1 || n, '{}', now() - interval '2 hours' FROM generate_series(1, $2::int) n`;

/** A query of the dashboard as Grafana sends it. */
function filled(query: string, variables: Readonly<Record<string, string>>): string {
  return query
    .replaceAll("$__rate_interval", "1m")
    .replaceAll("$__range", "3h")
    .replace(/\$(\w+)/g, (_, name: string) => variables[name] ?? "");
}

describeWithTools(["prometheus"], "Prometheus over one process of every role", () => {
  const services = useServices("block");
  const alerts = useAlerts(services, "outbox");
  const { active, fires, ends } = alerts;
  let database: TestDatabase;
  const INSTALLATION = { namespace: "shop", job: "svc" };
  let receiver: Receiver;
  let limited: Receiver;
  let service: Service;

  const slot = `alerts_${randomUUID().replaceAll("-", "")}`;
  const insert = (topic: string, count = 1) =>
    database.query(
      "INSERT INTO outbox (topic, key, payload) SELECT $1, $1 || gen_random_uuid(), '{}' FROM generate_series(1, $2::int)",
      [topic, count],
    );
  const publish = () => database.query("CREATE PUBLICATION svc_outbox FOR TABLE outbox (id) WITH (publish = 'insert')");
  const act = async (action: "pause" | "resume", destination: string) => {
    const route = `/admin/destinations/${destination}/${action}`;
    const answer = await service.post({ reason: "maintenance" }, { path: route });
    expect([answer.status, answer.text]).toEqual([200, expect.anything()]);
  };
  const empty = () => database.query("DELETE FROM outbox WHERE state = 'pending'");

  beforeAll(async () => {
    database = await services.database();
    receiver = await services.receiver();
    limited = await services.receiver();
    const config: ConfigTree = {
      database: { poolSize: 6 },
      admin: { enabled: true, insecure: true },
      outbox: {
        pendingGaugeIntervalMs: 100,
        pollIntervalMs: 100,
        retryBaseDelayMs: 100,
        capture: { mode: "postgres-logical", enabled: true, stateDirectory: services.folder(), slot },
      },
      inbox: { relay: { pendingGaugeIntervalMs: 100 } },
      sources: { orders: { path: "/orders", idempotencyKeyPath: "$.id", topic: "ok" } },
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
        late: { baseUrl: receiver.url },
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
        ...["breaking", "slow", "blocking", "skipping", "late"].map((name) => ({
          topicPattern: name,
          destination: name,
        })),
        { topicPattern: "**", destination: "billing" },
      ],
    };
    const dropSlot = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1";
    // The server learns a moment after the service's end that nobody reads the slot.
    services.defer(() => eventually(() => database.query(dropSlot, [slot])));
    service = await services.start({ database, config });
    const target = { port: service.port, labels: { ...INSTALLATION, instance: "one" } };
    alerts.prometheus.scrape([target]);
    await alerts.shows("svc_info");
    await publish();
    // For the panel of what is refused.
    expect((await service.post("no JSON")).status).toBe(400);
    await alerts.shows('svc_component_up{component="outbox-capture"} == 1');
    // What fires for a Prometheus without any process, and for a capture without a publication.
    await ends("SvcAbsent");
    await ends("SvcCaptureDown");
  }, 60_000);

  test("SvcCaptureDown: the publication is gone", async () => {
    await database.query("DROP PUBLICATION svc_outbox");
    await database.query(
      "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active",
      [slot],
    );
    const { annotations } = await fires("SvcCaptureDown", { instance: "one" });
    await publish();
    await ends("SvcCaptureDown");
    expect(annotations.description).toContain("Delivery continues by polling.");
    await insert("ok");
    await alerts.shows("svc_capture_lag_seconds");
  });

  test("SvcNotReady: the outbox table is away", async () => {
    await database.query("ALTER TABLE outbox RENAME TO outbox_away");
    const { annotations } = await fires("SvcNotReady", { component: "outbox-poller" });
    await database.query("ALTER TABLE outbox_away RENAME TO outbox");
    await ends("SvcNotReady");
    expect(annotations.summary).toBe("svc is not ready: outbox-poller is down");
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

  test("SvcMessagesPartlyDead: a message of a list reached one destination, and died on the way to another", async () => {
    await insertDelivered(database, "partly", { billing: "state = 'sent'", once: "state = 'dead'" });
    await fires("SvcMessagesPartlyDead");
    await database.query("DELETE FROM outbox WHERE key = 'partly'");
    await ends("SvcMessagesPartlyDead");
  });

  test("SvcTransformsFailing: an expression fails, and the body goes out untransformed", async () => {
    await insert("skipping");
    await fires("SvcTransformsFailing", { strategy: "Skip" });
    await ends("SvcTransformsFailing");
  });

  test("SvcDestinationPaused: an operator pauses it; its rows are not late", async () => {
    await act("pause", "billing");
    const paused = 'svc_destination_state{destination="billing", state="paused"} == 1';
    await alerts.shows(paused);
    await database.query(CREATE_OLD, ["billing", 3]);
    const { annotations } = await fires("SvcDestinationPaused", { destination: "billing" });
    expect(await active("SvcOutboxLate")).toEqual([]);
    expect(await active("SvcDestinationLate")).toEqual([]);
    await act("resume", "billing");
    await ends("SvcDestinationPaused");
    // Until they are delivered, its rows are late.
    await alerts.shows('svc_destination_oldest_age_seconds{destination="billing"} == 0');
    await alerts.shows("svc_outbox_oldest_pending_age_seconds == 0");
    await ends("SvcOutboxLate");
    await ends("SvcDestinationLate");
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
    // The backlog has grown over the rate limit, too.
    await alerts.shows('max_over_time(svc_destination_backlog{destination="slow"}[3s]) == 0');
    await ends("SvcDestinationRateLimited");
    expect(annotations.description).toMatch(/^The oldest due row for slow is 2h 0m \d+s old\. State: (ok|unknown)\.$/);
  });

  test("SvcDestinationRateLimited: more comes than the rate limit lets through", async () => {
    await whileDoing(
      () => insert("slow", 3),
      () => fires("SvcDestinationRateLimited", { destination: "slow" }),
    );
    await empty();
    await ends("SvcDestinationRateLimited");
  });

  test("SvcDeliveryBudgetFast and SvcDeliveryBudgetSlow: deliveries come hours after their rows", async () => {
    const late = { destination: "late" };
    const { annotations } = await whileDoing(
      () => database.query(CREATE_OLD, ["late", 3]),
      async () => {
        await fires("SvcDeliveryBudgetSlow", late);
        return await fires("SvcDeliveryBudgetFast", late);
      },
    );
    await ends("SvcDeliveryBudgetFast", late);
    await ends("SvcDeliveryBudgetSlow", late);
    expect(annotations.description).toMatch(/^100% of the last hour's deliveries to late /);
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
      expect(await alerts.prometheus.query(all)).not.toEqual([]);
      expect(await alerts.prometheus.query(own)).not.toEqual([]);
      // A panel that says 0 for nothing does so for another installation, too.
      const ofOther = (await alerts.prometheus.query(other)).map(({ value }) => value[1]);
      expect(ofOther).toEqual(expr.endsWith("or vector(0)") ? ["0"] : []);
    });

    test.each(
      dashboard().templating.list.flatMap(({ name, query }) =>
        typeof query === "string" ? [] : [[name, query.query]],
      ),
    )("the variable %s has values", async (name, query = "") => {
      const [, selector = "", label = ""] = /^label_values\((.+), (\w+)\)$/.exec(query) ?? [];
      const series = await alerts.prometheus.query(filled(selector, { namespace: ".*", job: ".*" }));
      const values = new Set(series.map(({ metric }) => metric[label]));
      const expected = { namespace: "shop", job: "svc", instance: "one", destination: "billing" };
      expect(values).toContain(expected[name as keyof typeof expected]);
    });
  });

  alerts.testCoverage();
});
