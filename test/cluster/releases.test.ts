import path from "node:path";
import { beforeAll, expect, test } from "@jest/globals";
import { CHART } from "../support/chart/render.ts";
import type { TestDatabase } from "../support/databases.ts";
import { eventually } from "../support/eventually.ts";
import { useServices } from "../support/service.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcpProxy.ts";
import { type Cluster, describeCluster, type HelmVersion, startCluster } from "./cluster.ts";
import { HOST_ADDRESS } from "./container.ts";

/** The life of a release on a real control plane: everything that helm and the API server say is looked at. */
describeCluster("a release of the chart", () => {
  const services = useServices("block");
  let cluster: Cluster;
  let database: TestDatabase;
  let proxy: TcpProxy;

  beforeAll(async () => {
    cluster = await startCluster(services.folder(), { "postgres.data": HOST_ADDRESS });
    services.defer(() => cluster.stop());
    database = await services.database();
    proxy = await startTcpProxy(database, HOST_ADDRESS);
    services.defer(() => proxy.close());
  }, 300_000);

  const SETS = ["minimal", "production"] as const;
  const VERSIONS: readonly HelmVersion[] = ["3", "4"];

  const cases = SETS.flatMap((set) => VERSIONS.map((version) => [set, version] as const));

  test.each(cases)(
    "of the values %s with Helm %s is installed, tested, upgraded, rolled back and uninstalled, twice",
    async (set, version) => {
      const namespace = `${set}-${version}`;
      await cluster.namespace(namespace);
      const secrets = {
        "svc-database": { username: database.user, password: database.password },
        "svc-pull": { key: "key of the consumers" },
      };
      for (const [name, stringData] of Object.entries(secrets)) {
        await cluster.api.create(`/api/v1/namespaces/${namespace}/secrets`, { metadata: { name }, stringData });
      }
      await cluster.api
        .create("/apis/scheduling.k8s.io/v1/priorityclasses", { metadata: { name: "business-critical" }, value: 1000 })
        .catch(() => {});
      const url = `jdbc:postgresql://postgres.data:${proxy.port}/${database.name}?sslmode=disable`;
      const values = [
        ...["--namespace", namespace, "--values", path.join(CHART, "ci", `${set}-values.yaml`)],
        ...["--set-string", `config.database.url=${url}`, "--set-string", `config.database.username=${database.user}`],
        ...["--set", "probes.readiness.periodSeconds=1", "--set", "preStopSleepSeconds=1"],
      ];
      const helm = async (...args: readonly string[]) => {
        const output = await cluster.helm(version, ...args);
        expect(output).not.toMatch(/warning|would violate|unknown field/i);
        return output;
      };
      const wait = ["--wait", "--timeout", "3m"];
      const running = async () => {
        const pods = await cluster.api.list(`/api/v1/namespaces/${namespace}/pods`);
        return pods.filter(({ metadata }) => metadata.labels["svc-relay/serves"] === "true");
      };

      for (let round = 0; round < 2; round += 1) {
        await helm("install", "shop", CHART, ...values, ...wait);
        await helm("test", "shop", "--namespace", namespace, "--timeout", "2m");
        const before = (await running()).map(({ metadata }) => metadata.name).sort();
        await helm("upgrade", "shop", CHART, ...values, "--set", "logLevel=debug", ...wait);
        await eventually(
          async () => {
            const now = (await running()).map(({ metadata }) => metadata.name);
            expect(now.filter((name) => before.includes(name))).toEqual([]);
            expect(now.length).toBeGreaterThanOrEqual(before.length);
          },
          { timeoutMs: 90_000, label: "the old pods are gone" },
        );
        await helm("rollback", "shop", "1", "--namespace", namespace, ...wait);
        await helm("uninstall", "shop", "--namespace", namespace, ...wait);
        await eventually(async () => expect(await running()).toEqual([]), {
          timeoutMs: 90_000,
          label: "the pods are gone",
        });
      }
    },
    900_000,
  );
});
