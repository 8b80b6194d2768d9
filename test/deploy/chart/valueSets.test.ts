import { expect, test } from "@jest/globals";
import { load, loadAll } from "js-yaml";
import { schemaFaults } from "../../support/chart/kubernetesSchemas.ts";
import { configurationOf, type Manifest, matches, type Pod, podsOf } from "../../support/chart/manifests.ts";
import { forEach, lint, RELEASE, VALUE_SETS } from "../../support/chart/render.ts";
import { useRenderedSets } from "../../support/chart/renderedSets.ts";
import { describeWithTools } from "../../support/describeWithTools.ts";
import { codeBlocks } from "../../support/markdown.ts";
import { read } from "../../support/repository.ts";

/** What holds for the chart with whatever values: every value set of `helm/svc/ci`. */

/** The oldest version that the chart takes and a present one. */
const KUBERNETES_VERSIONS = ["1.30", "1.34"];

describeWithTools(["helm", "kubernetes-validate"], "the chart with every value set", () => {
  const sets = useRenderedSets();

  /** What `check` finds wrong with each pod of each value set. */
  const faultsOfPods = (check: (pod: Pod, manifests: readonly Manifest[]) => readonly string[]) =>
    sets
      .all()
      .flatMap(([set, manifests]) =>
        podsOf(manifests).flatMap((pod) => check(pod, manifests).map((fault) => `${set}: ${pod.of}: ${fault}`)),
      );

  test("there are at least twelve of them", () => {
    expect(VALUE_SETS.length).toBeGreaterThanOrEqual(12);
  });

  test("passes helm lint --strict", async () => {
    await forEach(VALUE_SETS, async (name) => {
      expect(await lint({ values: [name] })).toContain("1 chart(s) linted, 0 chart(s) failed");
    });
  });

  /** Whether an operator brings the kind, and its schema, rather than Kubernetes. test/deploy/chart/objects.test.ts names their specs. */
  const isCustom = ({ apiVersion }: Manifest) =>
    apiVersion.includes(".") && (apiVersion.startsWith("gateway.") || !apiVersion.includes(".k8s.io/"));

  test("makes objects that Kubernetes takes, without an unknown key", async () => {
    const documents = sets
      .all()
      .flatMap(([set, manifests]) =>
        manifests
          .filter((manifest) => !isCustom(manifest))
          .map((manifest) => ({ name: `${set}: ${manifest.kind} ${manifest.metadata.name}`, manifest })),
      );
    expect(documents.length).toBeGreaterThan(100);
    const shown = codeBlocks(read("helm/svc/README.md")).find(({ text }) => text.startsWith("# trial.yaml"));
    const trial = loadAll(shown?.text ?? "") as Manifest[];
    expect(trial).toHaveLength(4);
    documents.push(...trial.map((manifest) => ({ name: "README.md", manifest })));
    expect(await schemaFaults(documents, KUBERNETES_VERSIONS)).toEqual([]);
    const bad = {
      name: "bad",
      manifest: { apiVersion: "v1", kind: "Service", metadata: { name: "x" }, spec: { prots: [] } },
    };
    expect(await schemaFaults([bad], ["1.34"])).toEqual([expect.stringContaining("prots")]);
  });

  test("names each object once, in the namespace of the release", () => {
    for (const [set, manifests] of sets.all()) {
      const names = manifests.map(({ kind, metadata }) => `${set}: ${metadata.namespace} ${kind} ${metadata.name}`);
      expect(new Set(names).size).toBe(names.length);
      expect(names.filter((name) => !name.startsWith(`${set}: ${RELEASE.namespace} `))).toEqual([]);
    }
  });

  test("keeps every pod within the restricted security standard", () => {
    const faults = faultsOfPods(({ spec }) => [
      ...unless(spec.automountServiceAccountToken === false, "mounts the token of its account"),
      ...unless(spec.securityContext.runAsNonRoot === true, "may run as root"),
      ...unless(seccompOf(spec.securityContext) === "RuntimeDefault", "has no seccomp profile"),
      ...unless(spec.hostNetwork === undefined && spec.hostPID === undefined, "uses the host"),
      ...[...(spec.initContainers ?? []), ...spec.containers].flatMap(({ securityContext }) => [
        ...unless(securityContext.allowPrivilegeEscalation === false, "may gain privileges"),
        ...unless(securityContext.readOnlyRootFilesystem === true, "may write to its root file system"),
        ...unless(JSON.stringify(securityContext.capabilities) === '{"drop":["ALL"]}', "keeps capabilities"),
      ]),
    ]);
    expect(faults).toEqual([]);
  });

  test("keeps the variables of Services away from what the service reads as configuration", () => {
    expect(faultsOfPods(({ spec }) => unless(spec.enableServiceLinks === false, "gets SVC_ variables"))).toEqual([]);
  });

  test("mounts what is there, and gives every pod memory and a place for temporary files", () => {
    const faults = faultsOfPods(({ spec, container }) => {
      const volumes = spec.volumes.map(({ name }) => name);
      return [
        ...container.volumeMounts.filter(({ name }) => !volumes.includes(name)).map(({ name }) => `no volume ${name}`),
        ...unless(new Set(volumes).size === volumes.length, "has two volumes of one name"),
        ...unless(
          container.volumeMounts.some(({ mountPath }) => mountPath === "/tmp"),
          "has no /tmp",
        ),
        ...unless(container.resources.limits?.memory !== undefined, "has no memory limit"),
        ...unless(container.resources.requests?.["ephemeral-storage"] !== undefined, "asks for no disk"),
      ];
    });
    expect(faults).toEqual([]);
  });

  test("runs hooks with nothing but what hooks have made before", () => {
    const faults = faultsOfPods(({ owner, spec }, manifests) => {
      if (owner.metadata.annotations?.["helm.sh/hook"] !== "pre-install,pre-upgrade") return [];
      const earlier = manifests.filter(
        ({ metadata }) => Number(metadata.annotations?.["helm.sh/hook-weight"] ?? 99) < 0,
      );
      const has = (kind: string, name: string | undefined) =>
        earlier.some((manifest) => manifest.kind === kind && manifest.metadata.name === name);
      const madeHere = (kind: string, name: string | undefined) =>
        manifests.some((manifest) => manifest.kind === kind && manifest.metadata.name === name);
      const account = spec.serviceAccountName;
      return [
        ...unless(has("ServiceAccount", account) || !madeHere("ServiceAccount", account), `no account ${account} yet`),
        ...spec.volumes.flatMap(({ configMap, secret }) => [
          ...unless(
            configMap === undefined || !madeHere("ConfigMap", configMap.name) || has("ConfigMap", configMap.name),
            "no ConfigMap yet",
          ),
          ...unless(
            secret === undefined || !madeHere("Secret", secret.secretName) || has("Secret", secret.secretName),
            "no Secret yet",
          ),
        ]),
      ];
    });
    expect(faults).toEqual([]);
  });

  test("selects with each selector exactly the pods that are meant", () => {
    for (const [set, manifests] of sets.all()) {
      const pods = podsOf(manifests);
      for (const manifest of manifests) {
        const selected = (labels: Readonly<Record<string, string>>) =>
          pods.filter(({ metadata }) => matches(labels, metadata.labels)).map(({ of }) => of);
        const at = `${set}: ${manifest.kind} ${manifest.metadata.name}`;
        const { spec } = manifest;
        if (manifest.kind === "Deployment" || manifest.kind === "PodDisruptionBudget") {
          expect([at, selected(spec.selector.matchLabels)]).toEqual([at, [`Deployment ${manifest.metadata.name}`]]);
        } else if (manifest.kind === "Service") {
          const served = selected(spec.selector);
          expect([at, served]).not.toEqual([at, []]);
          expect([at, served.filter((of) => !of.startsWith("Deployment "))]).toEqual([at, []]);
        } else if (manifest.kind === "NetworkPolicy") {
          expect([at, selected(spec.podSelector.matchLabels)]).not.toEqual([at, []]);
        } else if (manifest.kind === "HorizontalPodAutoscaler" || manifest.kind === "ScaledObject") {
          expect([at, pods.map(({ of }) => of)]).toEqual([
            at,
            expect.arrayContaining([`Deployment ${spec.scaleTargetRef.name}`]),
          ]);
        }
      }
    }
  });

  test("leads every port, probe and policy to a port that a container opens", () => {
    for (const [set, manifests] of sets.all()) {
      const pods = podsOf(manifests);
      const open = (pod: Pod) => pod.container.ports?.map(({ name }) => name) ?? [];
      for (const pod of pods.filter(({ kind }) => kind === "Deployment")) {
        const { startupProbe, livenessProbe, readinessProbe } = pod.container;
        const probed = [startupProbe, livenessProbe, readinessProbe].map((probe) => probe?.httpGet.port);
        expect([set, pod.of, open(pod)]).toEqual([set, pod.of, expect.arrayContaining(probed)]);
        const { server } = load(configurationOf(pod, manifests)) as {
          server: { httpPort: number; managementPort?: number };
        };
        const numbers = Object.fromEntries(
          pod.container.ports?.map(({ name, containerPort }) => [name, containerPort]) ?? [],
        );
        expect([set, numbers.http, numbers.management]).toEqual([set, server.httpPort, server.managementPort]);
      }
      for (const { kind, metadata, spec } of manifests) {
        const targets: string[] =
          kind === "Service"
            ? spec.ports.map(({ targetPort }: { targetPort: string }) => targetPort)
            : kind === "NetworkPolicy"
              ? spec.ingress.flatMap(({ ports }: { ports: { port: string }[] }) => ports.map(({ port }) => port))
              : [];
        const selector = kind === "Service" ? spec.selector : spec?.podSelector?.matchLabels;
        for (const target of targets) {
          const serving = pods.filter((pod) => matches(selector, pod.metadata.labels) && open(pod).includes(target));
          expect([set, metadata.name, target, serving.length > 0]).toEqual([set, metadata.name, target, true]);
        }
      }
    }
  });
});

function unless(holds: boolean, fault: string): string[] {
  return holds ? [] : [fault];
}

function seccompOf(context: Readonly<Record<string, unknown>>): unknown {
  return (context.seccompProfile as { readonly type?: unknown } | undefined)?.type;
}
