import { readFileSync } from "node:fs";
import path from "node:path";
import { dump, load } from "js-yaml";
import { CHART } from "../support/chart/render.ts";
import type { TestDatabase } from "../support/databases.ts";
import type { Services } from "../support/service.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcpProxy.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { HOST_ADDRESS } from "./container.ts";

/** A cluster with a database that pods reach through a proxy. All of it ends with the test. */
export interface Site {
  readonly cluster: Cluster;
  readonly database: TestDatabase;
  readonly proxy: TcpProxy;
  /** Makes a namespace with the Secrets that the value sets name. */
  namespace(name: string): Promise<void>;
  /**
   * A file of values for {@link Cluster.shell}.
   *
   * @param set a name of the chart's `ci/`, such as `minimal`
   * @param over values over those, as a tree
   */
  values(set: string, over?: Tree): string;
}

export type Tree = { readonly [key: string]: unknown };

export async function openSite(services: Services): Promise<Site> {
  const cluster = await startCluster(services.folder(), { "postgres.data": HOST_ADDRESS });
  services.defer(() => cluster.stop());
  const database = await services.database();
  const proxy = await startTcpProxy(database, HOST_ADDRESS);
  services.defer(() => proxy.close());
  return {
    cluster,
    database,
    proxy,
    async namespace(name) {
      await cluster.namespace(name);
      const secrets = {
        "svc-database": { username: database.user, password: database.password },
        "svc-pull": { key: "key of the consumers" },
      };
      for (const [secret, stringData] of Object.entries(secrets)) {
        await cluster.api.create(`/api/v1/namespaces/${name}/secrets`, { metadata: { name: secret }, stringData });
      }
    },
    values(set, over = {}) {
      const url = `jdbc:postgresql://postgres.data:${proxy.port}/${database.name}?sslmode=disable`;
      const own = {
        config: { database: { url, username: database.user } },
        // Sooner than in production: the tests wait for it.
        probes: { readiness: { periodSeconds: 1 } },
        preStopSleepSeconds: 1,
      };
      return dump(
        merged(merged(load(readFileSync(path.join(CHART, "ci", `${set}-values.yaml`), "utf8")) as Tree, own), over),
      );
    },
  };
}

function merged(tree: Tree, over: Tree): Tree {
  const isTree = (value: unknown): value is Tree =>
    typeof value === "object" && value !== null && !Array.isArray(value);
  const entries = Object.entries(over).map(([key, value]) => {
    const under = tree[key];
    return [key, isTree(under) && isTree(value) ? merged(under, value) : value];
  });
  return { ...tree, ...Object.fromEntries(entries) };
}
