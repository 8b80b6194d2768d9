import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Manifest } from "./manifests.ts";

/** The kinds that the chart looks up: `Kind` to API version and resource. */
const KINDS: Readonly<Record<string, readonly [apiVersion: string, resource: string]>> = {
  ConfigMap: ["v1", "configmaps"],
  Secret: ["v1", "secrets"],
  Deployment: ["apps/v1", "deployments"],
  ReplicaSet: ["apps/v1", "replicasets"],
};

export interface FakeCluster {
  readonly url: string;
  /** Paths that were asked for. */
  readonly asked: readonly string[];
  close(): Promise<void>;
}

/** The part of a Kubernetes API server that `lookup` in a template asks: discovery of {@link KINDS}, one object by its name, and all of a kind in a namespace. */
export async function fakeCluster(objects: readonly Manifest[]): Promise<FakeCluster> {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    const path = (request.url ?? "").split("?")[0] ?? "";
    asked.push(path);
    const body = answerOf(path, objects);
    response.writeHead(body === undefined ? 404 : 200, { "content-type": "application/json" });
    response.end(JSON.stringify(body ?? NOT_FOUND));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

const NOT_FOUND = { kind: "Status", apiVersion: "v1", status: "Failure", reason: "NotFound", code: 404 };

function answerOf(path: string, objects: readonly Manifest[]): object | undefined {
  const [, group = "", namespace, resource, name] =
    /^\/(?:api|apis)\/([^/]+(?:\/v1)?)(?:\/namespaces\/([^/]+)\/([^/]+)(?:\/([^/]+))?)?$/.exec(path) ?? [];
  if (resource === undefined) return resourceList(group);
  const [kind] = Object.entries(KINDS).find(([, each]) => each[0] === group && each[1] === resource) ?? [];
  const there = objects.filter((each) => each.kind === kind && each.metadata.namespace === namespace);
  if (kind === undefined) return undefined;
  if (name !== undefined) return there.find(({ metadata }) => metadata.name === name);
  return { kind: `${kind}List`, apiVersion: group, metadata: {}, items: there };
}

function resourceList(groupVersion: string): object | undefined {
  const resources = Object.entries(KINDS)
    .filter(([, [version]]) => version === groupVersion)
    .map(([kind, [, name]]) => ({ name, kind, singularName: "", namespaced: true, verbs: ["get", "list"] }));
  return resources.length === 0 ? undefined : { kind: "APIResourceList", apiVersion: "v1", groupVersion, resources };
}
