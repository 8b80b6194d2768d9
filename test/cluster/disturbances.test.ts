import { setTimeout as sleep } from "node:timers/promises";
import { beforeAll, expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.ts";
import { useServices } from "../support/service.ts";
import type { TcpProxy } from "../support/tcpProxy.ts";
import { type Cluster, describeCluster } from "./cluster.ts";
import { openSite } from "./installation.ts";
import { type Destination, type Senders, startDestination, startSenders } from "./traffic.ts";

const NAMESPACE = "messaging";
const SENDERS = 8;
/** Most messages that each kill or loss of the database may repeat: what two pollers deliver at a time. */
const IN_FLIGHT = 16;

/** What operators and machines do to the pods of a release under traffic. */
describeCluster("a release under traffic", () => {
  const services = useServices("block");
  let cluster: Cluster;
  let proxy: TcpProxy;
  let destination: Destination;
  let senders: Senders;

  beforeAll(async () => {
    const site = await openSite(services);
    ({ cluster, proxy } = site);
    destination = await startDestination();
    services.defer(() => destination.close());
    await site.namespace(NAMESPACE);
    const values = site.values("minimal", {
      config: {
        destinations: { billing: { baseUrl: `http://host.test:${destination.port}` } },
        sources: { orders: { aggregateIdPath: "$.key" } },
      },
      roleDefaults: { replicas: 2, podDisruptionBudget: { enabled: true } },
    });
    const files = { "values.yaml": values };
    await cluster.shell(NAMESPACE, "helm install shop helm/svc --values values.yaml --wait --timeout 3m", { files });
  }, 300_000);

  const podsOf = async (component: string) => {
    const selector = `labelSelector=app.kubernetes.io%2Fcomponent%3D${component}`;
    const pods = await cluster.api.list(`/api/v1/namespaces/${NAMESPACE}/pods?${selector}`);
    return pods.filter(({ metadata }) => metadata.deletionTimestamp === undefined);
  };
  const allReady = () =>
    eventually(
      async () => {
        const pods = (await Promise.all(["ingest", "relay", "poller"].map(podsOf))).flat();
        const ready = pods.filter(({ status }) =>
          status.containerStatuses?.every((each: { ready: boolean }) => each.ready),
        );
        expect(ready).toHaveLength(6);
      },
      { timeoutMs: 120_000, label: "all pods are ready" },
    );

  /** Sends before, while and after something happens. @returns what the senders met, and how many arrivals were repetitions */
  const under = async (run: string, happens: () => Promise<void>) => {
    senders = startSenders(cluster.api, { namespace: NAMESPACE, service: "shop-svc" }, SENDERS, run);
    await senders.moreAccepted(200);
    await happens();
    await senders.moreAccepted(200);
    await senders.stop();
    const { accepted, resets, failures } = senders.met;
    await eventually(() => expect(accepted.filter((id) => !destination.arrivals.has(id))).toEqual([]), {
      timeoutMs: 90_000,
      label: "everything that was accepted arrives",
    });
    const arrived = [...destination.arrivals].filter(([id]) => id.startsWith(`${run}-`));
    for (let sender = 0; sender < SENDERS; sender += 1) {
      const numbers = arrived.flatMap(([id]) =>
        id.startsWith(`${run}-${sender}-`) ? [Number(id.split("-").at(-1))] : [],
      );
      expect(numbers).toEqual(numbers.map((_, n) => n));
    }
    const repeated = arrived.reduce((sum, [, count]) => sum + count - 1, 0);
    console.info(
      `${run}: accepted ${accepted.length}, resets ${resets.length}, repeated ${repeated}, tried again ${JSON.stringify([...failures])}`,
    );
    return { resets, repeated };
  };

  test("a rolling restart loses, repeats and resets nothing", async () => {
    const restarted = await under("restart", async () => {
      await cluster.shell(NAMESPACE, "kubectl rollout restart deployment");
      for (const role of ["ingest", "relay", "poller"]) {
        await cluster.shell(NAMESPACE, `kubectl rollout status deployment/shop-svc-${role} --timeout=3m`);
      }
      await eventually(
        async () => {
          const pods = await cluster.api.list(`/api/v1/namespaces/${NAMESPACE}/pods`);
          expect(pods.filter(({ metadata }) => metadata.deletionTimestamp !== undefined)).toEqual([]);
        },
        { timeoutMs: 90_000, label: "the old pods are gone" },
      );
    });
    expect(restarted).toEqual({ resets: [], repeated: 0 });
  }, 300_000);

  test("a drain of a node loses, repeats and resets nothing", async () => {
    const drained = await under("drain", async () => {
      await cluster.shell(
        NAMESPACE,
        "kubectl drain node-1 --delete-emptydir-data --timeout=3m; kubectl uncordon node-1",
      );
      await allReady();
    });
    expect(drained).toEqual({ resets: [], repeated: 0 });
  }, 300_000);

  test.each(["ingest", "relay", "poller"])(
    "a kill of a pod of %s loses nothing, and repeats what was in flight at most",
    async (role) => {
      const { repeated } = await under(role, async () => {
        const [pod] = await podsOf(role);
        cluster.kubelet.workerOf(pod.metadata.name).kill();
        await senders.moreAccepted(100);
        await allReady();
      });
      expect(repeated).toBeLessThanOrEqual(role === "poller" ? IN_FLIGHT : 0);
    },
    300_000,
  );

  test("an outage of the database loses nothing, and repeats what was in flight at most", async () => {
    const { repeated } = await under("outage", async () => {
      proxy.setMode("cut");
      await sleep(8000);
      proxy.setMode("open");
      await allReady();
    });
    expect(repeated).toBeLessThanOrEqual(IN_FLIGHT);
  }, 300_000);
});
