import { beforeAll, expect, test } from "@jest/globals";
import { describeWithTools } from "../../support/describeWithTools.ts";
import { type ClusterState, type KubeStateMetrics, startKubeStateMetrics } from "../../support/kubeStateMetrics.ts";
import { useServices } from "../../support/service.ts";
import { useAlerts } from "./useAlerts.ts";

/** The alerts that the chart adds. No cluster and no kube-state-metrics runs here: an exporter of the test shows what it would. */

const HEALTHY: ClusterState = {
  pods: [
    { name: "shop-svc-ingest-7d4b9c-x1", phase: "Running" },
    { name: "shop-svc-poller-5f6c7d-y1", phase: "Running" },
    // Those of other releases do not count.
    { name: "blog-svc-ingest-7d4b9c-x1", phase: "Pending" },
  ],
  jobs: [
    { name: "shop-svc-retention-1", startedAt: 1000, completedAt: 1060 },
    { name: "blog-svc-retention-1", startedAt: 1000, failed: true },
    { name: "shop-svc-migrate-1", startedAt: 1000, failed: true },
  ],
};

describeWithTools(["prometheus"], "Prometheus over kube-state-metrics", () => {
  const services = useServices("block");
  const names = { NAMESPACE: "sales", FULLNAME: "shop-svc" };
  const alerts = useAlerts(services, "kubernetes", { names });
  let cluster: KubeStateMetrics;

  beforeAll(async () => {
    cluster = await startKubeStateMetrics(names.NAMESPACE);
    services.defer(() => cluster.close());
    cluster.set(HEALTHY);
    // The target has no namespace of its own, so that of the series stays, as with `honorLabels: true`.
    alerts.prometheus.scrape([{ port: cluster.port, labels: { job: "kube-state-metrics", instance: "cluster" } }]);
    await alerts.shows('kube_pod_status_phase{namespace="sales", phase="Running"} == 1', 2);
  }, 60_000);

  test("SvcPodsNotStarting: a pod finds no node, one cannot pull its image", async () => {
    const pods: ClusterState["pods"] = [
      { name: "shop-svc-ingest-7d4b9c-x2", phase: "Pending" },
      { name: "shop-svc-poller-6a7b8c-y2", phase: "Pending", waiting: "ImagePullBackOff" },
    ];
    cluster.set({ ...HEALTHY, pods: [...HEALTHY.pods, ...pods] });
    const unplaced = await alerts.fires("SvcPodsNotStarting", { namespace: "sales", component: "ingest" });
    const unpulled = await alerts.fires("SvcPodsNotStarting", { namespace: "sales", component: "poller" });
    expect(await alerts.active("SvcPodsNotStarting")).toHaveLength(2);
    cluster.set(HEALTHY);
    await alerts.ends("SvcPodsNotStarting");
    const doesNotStart = (component: string) =>
      `1 pods of shop-svc-${component} do not start; some have not started for 10 minutes.`;
    expect(unplaced.annotations.description).toBe(doesNotStart("ingest"));
    expect(unpulled.annotations.description).toBe(`${doesNotStart("poller")} Reason: ImagePullBackOff.`);
  });

  test("SvcPodsNotStarting: a container ends right after each start", async () => {
    const ends: ClusterState = {
      ...HEALTHY,
      pods: [...HEALTHY.pods, { name: "shop-svc-relay-1a2b3c-z1", phase: "Running", waiting: "CrashLoopBackOff" }],
    };
    cluster.set(ends);
    const { annotations } = await alerts.fires("SvcPodsNotStarting", { component: "relay" });
    cluster.set(HEALTHY);
    await alerts.ends("SvcPodsNotStarting");
    expect(annotations.description).toMatch(/Reason: CrashLoopBackOff\.$/);
  });

  test("SvcRetentionJobFailed: a run fails, and the next one succeeds", async () => {
    const failed = { name: "shop-svc-retention-2", startedAt: 2000, failed: true };
    const running = { name: "shop-svc-retention-3", startedAt: 3000 };
    cluster.set({ ...HEALTHY, jobs: [...HEALTHY.jobs, failed] });
    const { annotations } = await alerts.fires("SvcRetentionJobFailed", { namespace: "sales" });
    cluster.set({ ...HEALTHY, jobs: [...HEALTHY.jobs, failed, running] });
    await alerts.shows('kube_job_status_start_time{job_name="shop-svc-retention-3"}');
    expect(await alerts.active("SvcRetentionJobFailed")).toHaveLength(1);
    // The failed one is kept.
    cluster.set({ ...HEALTHY, jobs: [...HEALTHY.jobs, failed, { ...running, completedAt: 3060 }] });
    await alerts.ends("SvcRetentionJobFailed");
    expect(annotations.description).toBe(
      "1 Jobs of shop-svc-retention have failed, and none has succeeded since the last of them.",
    );
  });

  alerts.testCoverage();
});
