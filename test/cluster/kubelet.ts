import { mkdirSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Api, isStatus, type KubeObject } from "./api.ts";
import { PodWorker } from "./podWorker.ts";

/** Nodes, the scheduler and the kubelets of a cluster: pods that the control plane has made run as processes of this machine. */
export class Kubelet {
  readonly #api: Api;
  readonly #folder: string;
  /** Names that pods can look up beside those of Services, with their addresses. */
  readonly #hosts: Readonly<Record<string, string>>;
  readonly #workers = new Map<string, PodWorker>();
  #isStopped = false;
  #loop: Promise<void> = Promise.resolve();
  #pods = 0;

  /** @param folder for the pods' files and logs */
  constructor(api: Api, folder: string, hosts: Readonly<Record<string, string>>) {
    this.#api = api;
    this.#folder = folder;
    this.#hosts = hosts;
  }

  async start(nodes: readonly string[]): Promise<void> {
    for (const name of nodes) {
      await this.#api.create("/api/v1/nodes", {
        metadata: { name, labels: { "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": name } },
      });
      await this.#api.patch(`/api/v1/nodes/${name}/status`, {
        status: {
          capacity: { cpu: "64", memory: "64Gi", pods: "200", "ephemeral-storage": "100Gi" },
          allocatable: { cpu: "64", memory: "64Gi", pods: "200", "ephemeral-storage": "100Gi" },
          conditions: [
            {
              type: "Ready",
              status: "True",
              reason: "Tests",
              message: "",
              lastHeartbeatTime: new Date().toISOString(),
            },
          ],
        },
      });
    }
    this.#loop = this.#run();
  }

  /** The worker of a pod that runs here. @throws Error when there is none */
  workerOf(name: string): PodWorker {
    const found = [...this.#workers.values()].find((worker) => worker.name === name);
    if (found === undefined) throw new Error(`there is no pod ${name}`);
    return found;
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#loop;
    await Promise.all([...this.#workers.values()].map((worker) => worker.destroy()));
  }

  async #run(): Promise<void> {
    while (!this.#isStopped) {
      try {
        await this.#pass();
      } catch (error) {
        // The next pass sees how things are; a test that waits for something in vain fails by itself.
        if (!this.#isStopped) console.warn(`kubelet: ${String(error)}`);
      }
      await sleep(INTERVAL_MS);
    }
  }

  async #pass(): Promise<void> {
    const pods = await this.#api.list("/api/v1/pods");
    for (const pod of pods) {
      if (pod.spec.nodeName === undefined) await this.#schedule(pod, pods);
      else this.#observe(pod);
    }
    const there = new Set(pods.map(({ metadata }) => metadata.uid));
    for (const [uid, worker] of this.#workers) {
      if (there.has(uid)) continue;
      this.#workers.delete(uid);
      await worker.destroy();
    }
  }

  async #schedule(pod: KubeObject, pods: readonly KubeObject[]): Promise<void> {
    const nodes = (await this.#api.list("/api/v1/nodes")).filter(({ spec }) => spec.unschedulable !== true);
    const load = (name: string) => pods.filter(({ spec }) => spec.nodeName === name).length;
    const [best] = nodes.map(({ metadata }) => metadata.name).sort((a, b) => load(a) - load(b));
    if (best === undefined || pod.metadata.deletionTimestamp !== undefined) return;
    const { name, namespace } = pod.metadata;
    const binding = { metadata: { name }, target: { apiVersion: "v1", kind: "Node", name: best } };
    await this.#api.create(`/api/v1/namespaces/${namespace}/pods/${name}/binding`, binding).catch((error: unknown) => {
      if (!isStatus(error, 404) && !isStatus(error, 409)) throw error;
    });
  }

  #observe(pod: KubeObject): void {
    const { uid, name } = pod.metadata;
    let worker = this.#workers.get(uid);
    if (worker === undefined) {
      this.#pods += 1;
      const folder = path.join(this.#folder, `${this.#pods}-${name}`);
      mkdirSync(folder, { recursive: true });
      worker = new PodWorker({ api: this.#api, pod, folder, number: this.#pods + 1, hosts: this.#hosts });
      this.#workers.set(uid, worker);
    }
    worker.observe(pod);
  }
}

const INTERVAL_MS = 50;
