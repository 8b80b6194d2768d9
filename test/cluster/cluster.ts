import { execFile } from "node:child_process";
import path from "node:path";
import { promisify } from "node:util";
import { serversFolder } from "../support/brokers/programs.ts";
import { describeWhere } from "../support/describeWhere.ts";
import { type Api, isStatus, type KubeObject } from "./api.ts";
import { HOST_ADDRESS, makeBridge, removeBridge } from "./container.ts";
import { startControlPlane } from "./controlPlane.ts";
import { Kubelet } from "./kubelet.ts";

/** A cluster: a real control plane, and nodes that run pods as processes. */
export interface Cluster {
  readonly api: Api;
  readonly kubelet: Kubelet;
  /** Makes a namespace under the Pod Security Standard `restricted`. */
  namespace(name: string): Promise<void>;
  /** @returns what it wrote, warnings included @throws Error with that when it fails */
  helm(version: HelmVersion, ...args: readonly string[]): Promise<string>;
  kubectl(...args: readonly string[]): Promise<string>;
  stop(): Promise<void>;
}

export type HelmVersion = "3" | "4";

const HELM: Readonly<Record<HelmVersion, string>> = { "3": "helm", "4": "helm4" };
const run = promisify(execFile);

/** `describe` where SVC_TEST_KUBE_APISERVER names the program of test/cluster/controlPlane: test/cluster/run does that. */
export function describeCluster(name: string, block: () => void): void {
  const need = {
    isThere: kubeProgram() !== undefined,
    isRequired: false,
    what: "a control plane",
    howToGet: "SVC_TEST_KUBE_APISERVER names no program: run test/cluster/install.sh, then test/cluster/run",
    whySkipped: "SVC_TEST_KUBE_APISERVER is not set: test/cluster/run runs it",
  };
  describeWhere(need, name, block);
}

function kubeProgram(): string | undefined {
  return process.env.SVC_TEST_KUBE_APISERVER || undefined;
}

/**
 * Starts a cluster of two nodes.
 *
 * @param folder for all that it writes
 * @param hosts names that pods can look up, with their addresses
 */
export async function startCluster(folder: string, hosts: Readonly<Record<string, string>>): Promise<Cluster> {
  const kube = kubeProgram();
  if (kube === undefined) throw new Error("SVC_TEST_KUBE_APISERVER is not set: run test/cluster/run");
  makeBridge();
  const { api, kubeconfig, stop } = await startControlPlane(kube, path.join(folder, "control-plane"));
  const kubelet = new Kubelet(api, path.join(folder, "pods"), { "host.test": HOST_ADDRESS, ...hosts });
  await kubelet.start(["node-1", "node-2"]);
  for (const definition of CUSTOM_RESOURCES)
    await api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition);

  const env = { PATH: process.env.PATH, HOME: path.join(folder, "home"), KUBECONFIG: kubeconfig };
  const command = async (program: string, args: readonly string[]) => {
    try {
      const { stdout, stderr } = await run(program, [...args], { env, maxBuffer: 64 * 1024 * 1024 });
      return stdout + stderr;
    } catch (error) {
      const { stdout, stderr } = error as { readonly stdout?: string; readonly stderr?: string };
      throw new Error(`${path.basename(program)} ${args.join(" ")} failed: ${stderr}${stdout}`, { cause: error });
    }
  };
  return {
    api,
    kubelet,
    async namespace(name) {
      const labels = Object.fromEntries(
        ["enforce", "warn", "audit"].map((mode) => [`pod-security.kubernetes.io/${mode}`, "restricted"]),
      );
      await api.create("/api/v1/namespaces", { metadata: { name, labels } }).catch((error: unknown) => {
        if (!isStatus(error, 409)) throw error;
      });
    },
    helm: (version, ...args) => command(path.join(serversFolder(), "bin", HELM[version]), args),
    kubectl: (...args) => command(kube, ["kubectl", ...args]),
    async stop() {
      await kubelet.stop();
      await stop();
      removeBridge();
    },
  };
}

/** What operators bring: the API server takes such objects, and nobody acts on them. */
const CUSTOM_RESOURCES: readonly KubeObject[] = [
  ["monitoring.coreos.com", "v1", "ServiceMonitor"],
  ["monitoring.coreos.com", "v1", "PrometheusRule"],
  ["keda.sh", "v1alpha1", "ScaledObject"],
].map(([group, version, kind = ""]) => {
  const plural = `${kind.toLowerCase()}s`;
  const schema = { openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } };
  return {
    metadata: { name: `${plural}.${group}` },
    spec: {
      group,
      scope: "Namespaced",
      names: { kind, plural },
      versions: [{ name: version, served: true, storage: true, schema }],
    },
  };
});
