import { execFile } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { serversFolder } from "../support/brokers/programs.ts";
import { CHART } from "../support/chart/render.ts";
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
  /**
   * Runs a script in a folder with the chart at `helm/svc`, with `helm` and `kubectl` for a namespace.
   *
   * @param files of that folder, by name
   * @returns what it wrote, warnings included
   * @throws Error with that when it fails
   */
  shell(namespace: string, script: string, options?: ShellOptions): Promise<string>;
  stop(): Promise<void>;
}

export type HelmVersion = "3" | "4";

export interface ShellOptions {
  /** Default 3. */
  readonly helm?: HelmVersion;
  readonly files?: Readonly<Record<string, string>>;
}

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

  let shells = 0;
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
    async shell(namespace, script, { helm = "3", files = {} } = {}) {
      shells += 1;
      const at = path.join(folder, `shell-${shells}`);
      mkdirSync(path.join(at, "bin"), { recursive: true });
      mkdirSync(path.join(at, "helm"));
      symlinkSync(CHART, path.join(at, "helm/svc"));
      symlinkSync(path.join(serversFolder(), "bin", HELM[helm]), path.join(at, "bin/helm"));
      writeFileSync(path.join(at, "bin/kubectl"), `#!/bin/sh\nexec ${kube} kubectl "$@"\n`, { mode: 0o755 });
      for (const [name, text] of Object.entries(files)) writeFileSync(path.join(at, name), text);
      const env = { PATH: `${at}/bin:${process.env.PATH}`, HOME: at, KUBECONFIG: kubeconfig(namespace) };
      const options = { env, cwd: at, maxBuffer: 64 * 1024 * 1024 };
      try {
        const { stdout, stderr } = await run("bash", ["-euo", "pipefail", "-c", script], options);
        return stdout + stderr;
      } catch (error) {
        const { stdout, stderr } = error as { readonly stdout?: string; readonly stderr?: string };
        throw new Error(`${script.trim()} failed: ${stderr}${stdout}`, { cause: error });
      }
    },
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
