import { setTimeout as sleep } from "node:timers/promises";
import { beforeAll, expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.ts";
import { blocksOf } from "../support/markdown.ts";
import { read } from "../support/repository.ts";
import { useServices } from "../support/service.ts";
import type { KubeObject } from "./api.ts";
import { type Cluster, describeCluster } from "./cluster.ts";
import { openSite, type Site, type Tree } from "./installation.ts";
import { type Destination, startDestination, startSenders } from "./traffic.ts";

/** What docs/upgrade.md and the chart's README tell operators to do, done literally. */
describeCluster("the procedures of the documentation", () => {
  const services = useServices("block");
  let site: Site;
  let cluster: Cluster;
  let destination: Destination;

  beforeAll(async () => {
    site = await openSite(services);
    ({ cluster } = site);
    destination = await startDestination();
    services.defer(() => destination.close());
  }, 300_000);

  /** A namespace with the release `relay`. @returns runs scripts in it */
  const install = async (namespace: string, over: Tree = {}) => {
    await site.namespace(namespace);
    const billing = { baseUrl: `http://host.test:${destination.port}` };
    const sources = { orders: { aggregateIdPath: "$.key" } };
    const { config = {}, ...rest } = over as { readonly config?: Tree };
    const files = {
      "values.yaml": site.values("minimal", { config: { destinations: { billing }, sources, ...config }, ...rest }),
    };
    const shell = (script: string, values?: Tree) =>
      cluster.shell(namespace, script, {
        files: values === undefined ? files : { "values.yaml": site.values("minimal", values) },
      });
    await shell("helm install relay helm/svc --values values.yaml --wait --timeout 3m");
    return shell;
  };
  const list = (namespace: string, path: string): Promise<readonly KubeObject[]> =>
    cluster.api.list(path.replace("{}", `namespaces/${namespace}`));
  const servingPods = async (namespace: string, component?: string) => {
    const pods = await list(namespace, "/api/v1/{}/pods");
    return pods.filter(
      ({ metadata }) =>
        metadata.labels["svc-relay/serves"] === "true" &&
        (component === undefined || metadata.labels["app.kubernetes.io/component"] === component),
    );
  };
  /** The script of docs/upgrade.md that holds a line. */
  const scriptWith = (line: string): string => {
    const found = blocksOf(read("docs/upgrade.md"), "sh").find((block) => block.includes(line));
    if (found === undefined) throw new Error(`docs/upgrade.md has no script with ${line}`);
    return found;
  };

  test("a breaking release, after a test of the release and a run of the CronJob", async () => {
    const namespace = "breaking";
    const retention = { enabled: true, outbox: { policy: "AGE", maxAge: "14d" } };
    const shell = await install(namespace, { config: { retention }, roles: { retention: { kind: "CronJob" } } });
    await shell("helm test relay --timeout 2m");
    await shell(
      "kubectl create job once --from=cronjob/relay-svc-retention; kubectl wait job/once --for=condition=complete --timeout=60s",
    );
    const before = new Set((await servingPods(namespace)).map(({ metadata }) => metadata.uid));
    await shell(scriptWith("kubectl patch cronjob relay-svc-retention"));
    const after = await servingPods(namespace);
    expect(after.length).toBe(before.size);
    expect(after.filter(({ metadata }) => before.has(metadata.uid))).toEqual([]);
    await shell("helm uninstall relay --wait");
  }, 300_000);

  test("autoscaling goes on from the replicas that are there", async () => {
    const namespace = "scaling";
    const shell = await install(namespace, { roles: { ingest: { replicas: 3 } } });
    const counts = new Set<number>();
    const watching = new AbortController();
    const watched = (async () => {
      while (!watching.signal.aborted) {
        const { spec } = await cluster.api.get(`/apis/apps/v1/namespaces/${namespace}/deployments/relay-svc-ingest`);
        counts.add(spec.replicas);
        await sleep(50);
      }
    })();
    await shell("helm upgrade relay helm/svc --values values.yaml --wait --timeout 3m", {
      roles: { ingest: { autoscaling: { enabled: true, minReplicas: 2 } } },
    });
    watching.abort();
    await watched;
    expect([...counts]).toEqual([3]);
    await shell("helm uninstall relay --wait");
  }, 300_000);

  test("a change of the mode resets nobody and leaves nobody without a pod", async () => {
    const namespace = "modes";
    const shell = await install(namespace);
    const senders = startSenders(cluster.api, { namespace, service: "relay-svc" }, 4, "modes");
    await senders.moreAccepted(100);
    const script = scriptWith("helm.sh/resource-policy=keep");
    await shell(script, {
      mode: "allInOne",
      config: {
        destinations: { billing: { baseUrl: `http://host.test:${destination.port}` } },
        sources: { orders: { aggregateIdPath: "$.key" } },
      },
    });
    await senders.moreAccepted(100);
    await senders.stop();
    const { accepted, resets, failures } = senders.met;
    expect({ resets, gaps: failures.get("no ready pod") ?? 0 }).toEqual({ resets: [], gaps: 0 });
    await eventually(() => expect(accepted.filter((id) => !destination.arrivals.has(id))).toEqual([]), {
      timeoutMs: 60_000,
      label: "everything that was accepted arrives",
    });
    await shell("helm uninstall relay --wait");
  }, 300_000);

  test("a configuration that svc refuses ends the upgrade at once, and the pods go on with theirs", async () => {
    const namespace = "refused";
    const shell = await install(namespace);
    const upgrade = shell("helm upgrade relay helm/svc --values values.yaml --wait --timeout 3m", {
      config: { sources: { orders: { idempotencyKeyPath: "$.[" } } },
    });
    // Helm asks for its log, too, which the kubelets of these tests do not serve.
    await expect(upgrade).rejects.toThrow(
      /logs for pod: relay-svc-check-.*job relay-svc-check failed: PodFailurePolicy/s,
    );
    const attempts = (await list(namespace, "/api/v1/{}/pods")).filter(
      ({ metadata }) => metadata.labels["app.kubernetes.io/component"] === "check",
    );
    expect(attempts.map(({ status }) => status.containerStatuses[0].state.terminated.exitCode)).toEqual([2]);
    const [pod] = await servingPods(namespace, "ingest");
    cluster.kubelet.workerOf(pod.metadata.name).kill();
    await eventually(
      async () => {
        const [{ status }] = await servingPods(namespace, "ingest");
        expect([status.containerStatuses[0].restartCount, status.containerStatuses[0].ready]).toEqual([1, true]);
      },
      { timeoutMs: 60_000, label: "the pod has started again" },
    );
    await shell("helm uninstall relay --wait");
  }, 300_000);

  test("the migration goes on to its end when helm has given up", async () => {
    const namespace = "waiting";
    // Helm would give up while it waits for the check.
    const shell = await install(namespace, { configCheck: { enabled: false } });
    await shell("kubectl cordon node-1 node-2");
    await expect(shell("helm upgrade relay helm/svc --values values.yaml --timeout 5s")).rejects.toThrow(
      /timed out|deadline/,
    );
    // As when its node fails: the Job makes another pod, for which it needs all that came with it.
    await shell(
      "kubectl delete pod --selector app.kubernetes.io/component=migrate --wait; kubectl uncordon node-1 node-2",
    );
    await shell("kubectl wait job/relay-svc-migrate --for=condition=complete --timeout=60s");
    await shell("helm upgrade relay helm/svc --values values.yaml --wait --timeout 3m");
    await shell("helm uninstall relay --wait");
  }, 300_000);
});
