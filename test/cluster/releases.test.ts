import { beforeAll, expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.ts";
import { useServices } from "../support/service.ts";
import { describeCluster, type HelmVersion } from "./cluster.ts";
import { openSite, type Site } from "./installation.ts";

/** The life of a release on a real control plane: everything that helm and the API server say is looked at. */
describeCluster("a release of the chart", () => {
  const services = useServices("block");
  let site: Site;

  beforeAll(async () => {
    site = await openSite(services);
    await site.cluster.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", {
      metadata: { name: "business-critical" },
      value: 1000,
    });
  }, 300_000);

  const VERSIONS: readonly HelmVersion[] = ["3", "4"];
  const cases = ["minimal", "production"].flatMap((set) => VERSIONS.map((version) => [set, version] as const));

  test.each(cases)(
    "of the values %s with Helm %s is installed, tested, upgraded, rolled back and uninstalled, twice",
    async (set, version) => {
      const namespace = `${set}-${version}`;
      await site.namespace(namespace);
      const files = { "values.yaml": site.values(set) };
      const helm = async (command: string) => {
        const output = await site.cluster.shell(namespace, `helm ${command}`, { helm: version, files });
        expect(output).not.toMatch(/warning|would violate|unknown field/i);
      };
      const running = async (): Promise<readonly string[]> => {
        const serving = "labelSelector=svc-relay%2Fserves%3Dtrue";
        const pods = await site.cluster.api.list(`/api/v1/namespaces/${namespace}/pods?${serving}`);
        return pods.map(({ metadata }) => metadata.name);
      };

      for (let round = 0; round < 2; round += 1) {
        await helm("install shop helm/svc --values values.yaml --wait --timeout 3m");
        await helm("test shop --timeout 2m");
        const before = await running();
        await helm("upgrade shop helm/svc --values values.yaml --set logLevel=debug --wait --timeout 3m");
        await eventually(
          async () => {
            const now = await running();
            expect(now.filter((name) => before.includes(name))).toEqual([]);
            expect(now.length).toBeGreaterThanOrEqual(before.length);
          },
          { timeoutMs: 90_000, label: "the old pods are gone" },
        );
        await helm("rollback shop 1 --wait --timeout 3m");
        await helm("uninstall shop --wait --timeout 3m");
        await eventually(async () => expect(await running()).toEqual([]), {
          timeoutMs: 90_000,
          label: "the pods are gone",
        });
      }
    },
    900_000,
  );
});
