import { afterEach, expect, test } from "@jest/globals";
import { type FakeCluster, fakeCluster } from "../../support/chart/fakeCluster.ts";
import { type Manifest, matches, named, podsOf } from "../../support/chart/manifests.ts";
import { RELEASE, type RenderOptions, render } from "../../support/chart/render.ts";
import { describeWithTools } from "../../support/describeWithTools.ts";

/** What an upgrade makes of what it finds in the cluster. */

const { fullname, namespace } = RELEASE;
const SCALED = { "roles.ingest.autoscaling": { enabled: true, minReplicas: 2, maxReplicas: 9 } };

/** What Deployments make: a ReplicaSet of each, with pods. */
function replicaSetsOf(manifests: readonly Manifest[], replicas = 1): Manifest[] {
  return podsOf(manifests)
    .filter(({ kind }) => kind === "Deployment")
    .map(({ owner }) => ({
      apiVersion: "apps/v1",
      kind: "ReplicaSet",
      metadata: { name: `${owner.metadata.name}-1`, namespace, labels: owner.spec.template.metadata.labels },
      spec: { replicas, template: owner.spec.template },
    }));
}

/** The same pods as a chart made them that named the configuration after the release, and whose Service went by the component. */
function ofOlderChart(manifests: readonly Manifest[]): Manifest[] {
  const name = configOf(manifests).metadata.name;
  const text = JSON.stringify(manifests).replaceAll(name, fullname).replaceAll(',"svc-relay/ingest":"true"', "");
  return (JSON.parse(text) as Manifest[]).map(({ ...manifest }) => {
    delete (manifest as { immutable?: boolean }).immutable;
    return manifest;
  });
}

const configsOf = (manifests: readonly Manifest[], kind = "ConfigMap") =>
  manifests.filter((each) => each.kind === kind && !each.metadata.name.endsWith("-migrate"));
const configOf = (manifests: readonly Manifest[]) => configsOf(manifests)[0] as Manifest;
const namesOf = (manifests: readonly Manifest[]) => manifests.map(({ metadata }) => metadata.name);

describeWithTools(["helm"], "an upgrade of the chart", () => {
  let cluster: FakeCluster | undefined;
  afterEach(() => cluster?.close());

  const upgrade = async (there: readonly Manifest[], options: RenderOptions) => {
    cluster = await fakeCluster(there);
    const manifests = await render({ ...options, upgradeOf: cluster.url });
    expect(cluster.asked).toContain(`/apis/apps/v1/namespaces/${namespace}/replicasets`);
    return manifests;
  };

  test("keeps the configuration of pods that are to be replaced, unchanged", async () => {
    const before = await render({ values: ["minimal"] });
    const [old] = configsOf(before);
    const after = await upgrade([...replicaSetsOf(before), ...configsOf(before)], {
      values: ["minimal"],
      set: { "config.outbox.concurrency": 9 },
    });
    const [current, kept, ...more] = configsOf(after);
    expect([kept?.metadata.name, kept?.data, more]).toEqual([old?.metadata.name, old?.data, []]);
    expect([current, kept].map((each) => each && "immutable" in each)).toEqual([true, true]);
    expect(current?.metadata.name).not.toBe(old?.metadata.name);
    for (const { spec } of podsOf(after).filter(({ kind }) => kind === "Deployment")) {
      expect(spec.volumes[0]?.configMap?.name).toBe(current?.metadata.name);
    }
  });

  test("keeps a configuration in a Secret", async () => {
    const before = await render({ values: ["config-secret"] });
    const [old] = configsOf(before, "Secret");
    const data = { "svc.yml": Buffer.from(old?.stringData?.["svc.yml"] ?? "").toString("base64") };
    const { stringData: _, ...rest } = old as Manifest;
    const stored = { ...rest, data, type: "Opaque" };
    const after = await upgrade([...replicaSetsOf(before), stored], {
      values: ["config-secret"],
      set: { "config.outbox.concurrency": 9 },
    });
    expect(configsOf(after, "Secret")[1]).toMatchObject({
      metadata: { name: old?.metadata.name },
      data,
      type: "Opaque",
    });
  });

  test("keeps a configuration of the other kind", async () => {
    const before = await render({ values: ["minimal"] });
    const after = await upgrade([...replicaSetsOf(before), ...configsOf(before)], {
      values: ["minimal"],
      set: { configKind: "Secret" },
    });
    expect(namesOf(configsOf(after))).toEqual(namesOf(configsOf(before)));
    expect(configsOf(after, "Secret")).toHaveLength(1);
  });

  test("drops the configuration of ReplicaSets without pods, and of other releases", async () => {
    const before = await render({ values: ["minimal"] });
    const others = replicaSetsOf(before).map((each) => ({
      ...each,
      metadata: { ...each.metadata, labels: { ...each.metadata.labels, "app.kubernetes.io/instance": "another" } },
    }));
    const after = await upgrade([...replicaSetsOf(before, 0), ...others, ...configsOf(before)], {
      values: ["minimal"],
      set: { "config.outbox.concurrency": 9 },
    });
    expect(namesOf(configsOf(after))).not.toContain(configOf(before).metadata.name);
  });

  test("keeps the number of replicas when autoscaling takes over, and no fewer than its least", async () => {
    const before = await render({ values: ["minimal"] });
    const replicasFrom = async (live: number) => {
      const there = before.map((each) =>
        each.kind === "Deployment" ? { ...each, spec: { ...each.spec, replicas: live } } : each,
      );
      const after = await upgrade([...there, ...replicaSetsOf(before)], { values: ["minimal"], set: SCALED });
      await cluster?.close();
      return named(after, "Deployment", `${fullname}-ingest`).spec.replicas;
    };
    expect(await replicasFrom(6)).toBe(6);
    // As a breaking release leaves it: an autoscaler does nothing for a Deployment of none.
    expect(await replicasFrom(0)).toBe(2);
    const first = await render({ values: ["minimal"], set: SCALED });
    expect(named(first, "Deployment", `${fullname}-ingest`).spec).not.toHaveProperty("replicas");
  });

  test("leaves the number of replicas to an autoscaler whose field it is", async () => {
    const before = await render({ values: ["minimal"] });
    const replicasWith = async (managedFields: readonly object[], live = 6) => {
      const there = before.map((each) =>
        each.kind === "Deployment"
          ? { ...each, metadata: { ...each.metadata, managedFields }, spec: { ...each.spec, replicas: live } }
          : each,
      );
      const after = await upgrade([...there, ...replicaSetsOf(before)], { values: ["minimal"], set: SCALED });
      await cluster?.close();
      return named(after, "Deployment", `${fullname}-ingest`).spec.replicas;
    };
    const applied = { manager: "helm", operation: "Apply", fieldsV1: { "f:spec": { "f:replicas": {} } } };
    const updated = { manager: "helm", operation: "Update", fieldsV1: { "f:spec": { "f:replicas": {} } } };
    const scaled = {
      manager: "kube-controller-manager",
      operation: "Update",
      subresource: "scale",
      fieldsV1: { "f:spec": { "f:replicas": {} } },
    };
    const status = { ...scaled, subresource: "status", fieldsV1: { "f:status": {} } };
    expect(await replicasWith([applied, scaled])).toBeUndefined();
    // Nobody else has set it: without it the Deployment would have one.
    expect(await replicasWith([applied, status])).toBe(6);
    // helm 3 takes away what it leaves out.
    expect(await replicasWith([updated, scaled])).toBe(6);
    expect(await replicasWith([applied, scaled], 0)).toBe(2);
  });

  test("leads the Service and its policy to the ingest pods of both modes", async () => {
    const set = { networkPolicy: { enabled: true } };
    const perRole = await render({ values: ["minimal"], set });
    const after = await upgrade([...replicaSetsOf(perRole), ...configsOf(perRole)], {
      values: ["minimal"],
      set: { ...set, mode: "allInOne" },
    });
    const service = named(after, "Service", fullname).spec.selector;
    expect(named(after, "NetworkPolicy", `${fullname}-data`).spec.podSelector.matchLabels).toEqual(service);
    const selected = [...podsOf(perRole), ...podsOf(after)].filter(({ metadata }) => matches(service, metadata.labels));
    expect(selected.map(({ of }) => of)).toEqual([`Deployment ${fullname}-ingest`, `Deployment ${fullname}-all`]);
  });

  test("leads the Service to pods of an older chart, and keeps their configuration", async () => {
    const older = ofOlderChart(await render({ values: ["minimal"] }));
    const after = await upgrade([...replicaSetsOf(older), ...configsOf(older)], { values: ["minimal"] });
    const selector = named(after, "Service", fullname).spec.selector;
    const served = [...podsOf(older), ...podsOf(after)].filter(({ metadata }) => matches(selector, metadata.labels));
    expect(served.map(({ of }) => of)).toEqual([`Deployment ${fullname}-ingest`, `Deployment ${fullname}-ingest`]);
    // Once it is immutable it could not go back to what a rollback wants.
    expect(named(after, "ConfigMap", fullname)).not.toHaveProperty("immutable");
  });
});
