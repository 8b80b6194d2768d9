import { writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Api, isStatus, type KubeObject } from "./api.ts";
import { type Mount, makeNetwork, type PodNetwork, type RunningContainer, startContainer } from "./container.ts";
import { type ProbeResult, probe } from "./probes.ts";
import { mountsOf, variablesOf } from "./volumes.ts";

export interface PodWorkerOptions {
  readonly api: Api;
  readonly pod: KubeObject;
  /** For its files and logs. */
  readonly folder: string;
  /** Of the pod, for its address. */
  readonly number: number;
  readonly hosts: Readonly<Record<string, string>>;
}

/** One container, as the pod's status tells of it. */
interface ContainerState {
  readonly spec: KubeObject;
  running: RunningContainer | undefined;
  startedAt: string;
  isStarted: boolean;
  isReady: boolean;
  restarts: number;
  exitCode: number | undefined;
  waiting: { readonly reason: string; readonly message: string } | undefined;
}

/** Runs the containers of one pod, from its binding to its end, as a kubelet does. */
export class PodWorker {
  readonly #options: PodWorkerOptions;
  readonly #states: readonly ContainerState[];
  readonly #ended = new AbortController();
  #network: PodNetwork | undefined;
  #isStopping = false;
  #isDestroyed = false;
  #isStatusDue = true;
  readonly #work: Promise<void>;
  #stop: Promise<void> | undefined;

  constructor(options: PodWorkerOptions) {
    this.#options = options;
    const { initContainers = [], containers } = options.pod.spec;
    this.#states = [...initContainers, ...containers].map((spec: KubeObject) => ({
      spec,
      running: undefined,
      startedAt: "",
      isStarted: false,
      isReady: false,
      restarts: 0,
      exitCode: undefined,
      waiting: { reason: "ContainerCreating", message: "" },
    }));
    this.#work = this.#run().catch((error: unknown) => console.warn(`pod ${this.name}: ${String(error)}`));
  }

  get name(): string {
    return this.#options.pod.metadata.name;
  }

  get address(): string {
    return this.#network?.address ?? "";
  }

  /** Where the lines of its containers are. */
  get logFile(): string {
    return path.join(this.#options.folder, "log");
  }

  /** What the API server says of the pod by now. */
  observe(pod: KubeObject): void {
    if (pod.metadata.deletionTimestamp !== undefined && this.#stop === undefined) {
      this.#stop = this.#end(pod.metadata.deletionGracePeriodSeconds ?? 30).catch((error: unknown) =>
        console.warn(`end of the pod ${this.name}: ${String(error)}`),
      );
    }
  }

  /** Kills its containers, as a crash does. */
  kill(): void {
    for (const { running } of this.#states) running?.kill("SIGKILL");
  }

  /** Ends it at once and for good. */
  async destroy(): Promise<void> {
    this.#isStopping = true;
    this.#isDestroyed = true;
    this.#ended.abort();
    this.kill();
    await this.#stop;
    await this.#work;
    this.#network?.remove();
    this.#network = undefined;
  }

  get #isMain(): (state: ContainerState) => boolean {
    const { containers } = this.#options.pod.spec;
    return ({ spec }) => containers.includes(spec);
  }

  async #run(): Promise<void> {
    const { pod, folder, number } = this.#options;
    this.#network = makeNetwork(number);
    writeFileSync(path.join(folder, "hosts"), await this.#hostsFile());
    const reporting = this.#report();
    const running: Promise<void>[] = [];
    for (const state of this.#states) {
      const isSidecar = state.spec.restartPolicy === "Always";
      const work = this.#runContainer(
        state,
        isSidecar ? "Always" : this.#isMain(state) ? (pod.spec.restartPolicy ?? "Always") : "OnFailure",
      );
      if (!this.#isMain(state) && !isSidecar) await work;
      else running.push(work);
    }
    await Promise.all(running);
    await reporting;
  }

  async #runContainer(state: ContainerState, restartPolicy: string): Promise<void> {
    const { signal } = this.#ended;
    while (!this.#isStopping) {
      try {
        await this.#startContainer(state);
      } catch (error) {
        this.#set(state, { waiting: { reason: "CreateContainerConfigError", message: String(error) } });
        await sleep(RETRY_MS, undefined, { signal }).catch(() => {});
        continue;
      }
      const over = new AbortController();
      const probing = this.#probeAll(state, over.signal);
      const exitCode = await state.running?.exited;
      over.abort();
      await probing;
      this.#set(state, { running: undefined, isReady: false, isStarted: false, exitCode });
      if (restartPolicy === "Never" || (restartPolicy === "OnFailure" && exitCode === 0)) return;
      if (this.#isStopping) return;
      this.#set(state, { restarts: state.restarts + 1 });
      await sleep(RETRY_MS, undefined, { signal }).catch(() => {});
    }
  }

  async #startContainer(state: ContainerState): Promise<void> {
    const { api, pod, folder } = this.#options;
    const network = this.#network;
    if (network === undefined) throw new Error("there is no network");
    const { spec } = state;
    const { runAsUser, runAsGroup } = { ...pod.spec.securityContext, ...spec.securityContext };
    const hosts: Mount = { from: path.join(folder, "hosts"), to: "/etc/hosts", isWritable: false };
    const mounts = await mountsOf(api, pod, spec, path.join(folder, "volumes"));
    const env = await variablesOf(api, pod, spec, network.address);
    if (this.#isStopping) return;
    const running = startContainer({
      network,
      command: [...(spec.command ?? ENTRYPOINT), ...(spec.args ?? [])],
      env,
      mounts: [hosts, ...mounts],
      user: runAsUser,
      group: runAsGroup ?? runAsUser,
      folder: path.join(folder, `root-${spec.name}`),
      logFile: this.logFile,
    });
    this.#set(state, { running, startedAt: new Date().toISOString(), waiting: undefined, exitCode: undefined });
  }

  async #probeAll(state: ContainerState, signal: AbortSignal): Promise<void> {
    const { startupProbe, readinessProbe, livenessProbe } = state.spec;
    const each = (spec: KubeObject, onResult: (result: ProbeResult) => "go on" | "end") =>
      spec === undefined ? undefined : probe(this.address, state.spec, spec, signal, onResult);
    await each(startupProbe, (result) => {
      if (result === "failed") state.running?.kill("SIGKILL");
      return "end";
    });
    if (signal.aborted) return;
    this.#set(state, { isStarted: true, isReady: readinessProbe === undefined });
    await Promise.all([
      each(readinessProbe, (result) => {
        this.#set(state, { isReady: result === "passed" });
        return "go on";
      }),
      each(livenessProbe, (result) => {
        if (result === "failed") state.running?.kill("SIGTERM");
        return result === "failed" ? "end" : "go on";
      }),
    ]);
  }

  /** The end that somebody asked for: preStop, SIGTERM, SIGKILL when the grace period is over, and the API server hears that the pod is gone. */
  async #end(graceSeconds: number): Promise<void> {
    const { api, pod } = this.#options;
    const deadline = performance.now() + graceSeconds * 1000;
    const containers = this.#states.filter(({ running }) => running !== undefined);
    this.#isStopping = true;
    const sleeps = containers.map(({ spec }) => spec.lifecycle?.preStop?.sleep?.seconds ?? 0);
    await sleep(Math.min(Math.max(0, ...sleeps), graceSeconds) * 1000, undefined, { signal: this.#ended.signal }).catch(
      () => {},
    );
    for (const { running } of containers) running?.kill("SIGTERM");
    const killing = new AbortController();
    const killed = sleep(Math.max(0, deadline - performance.now()), undefined, { signal: killing.signal }).then(
      () => this.kill(),
      () => {},
    );
    await Promise.all(containers.map(({ running }) => running?.exited));
    killing.abort();
    await killed;
    this.#ended.abort();
    await this.#work;
    if (this.#isDestroyed) return;
    const { name, namespace, uid } = pod.metadata;
    await api
      .delete(`/api/v1/namespaces/${namespace}/pods/${name}`, { gracePeriodSeconds: 0, preconditions: { uid } })
      .catch((error: unknown) => {
        if (!isStatus(error, 404) && !isStatus(error, 409)) throw error;
      });
  }

  #set(state: ContainerState, change: Partial<ContainerState>): void {
    Object.assign(state, change);
    this.#isStatusDue = true;
  }

  /** Tells the API server of each change, until the containers have ended for good. */
  async #report(): Promise<void> {
    const { api, pod } = this.#options;
    const { name, namespace } = pod.metadata;
    while (!this.#ended.signal.aborted) {
      if (this.#isStatusDue) {
        this.#isStatusDue = false;
        const status = this.#status();
        await api.patch(`/api/v1/namespaces/${namespace}/pods/${name}/status`, { status }).catch((error: unknown) => {
          if (!isStatus(error, 404)) this.#isStatusDue = true;
        });
        if (status.phase === "Succeeded" || status.phase === "Failed") return;
      }
      await sleep(REPORT_MS, undefined, { signal: this.#ended.signal }).catch(() => {});
    }
  }

  #status() {
    const main = this.#states.filter(this.#isMain);
    const hasEnded = main.every(({ exitCode, running }) => exitCode !== undefined && running === undefined);
    const isFinal = hasEnded && this.#options.pod.spec.restartPolicy === "Never";
    const failed = main.some(({ exitCode }) => exitCode !== 0);
    const isReady = main.every((state) => state.isReady);
    const phase = isFinal
      ? failed
        ? "Failed"
        : "Succeeded"
      : main.some(({ running }) => running)
        ? "Running"
        : "Pending";
    const condition = (type: string, holds: boolean) => ({
      type,
      status: holds ? "True" : "False",
      lastTransitionTime: new Date().toISOString(),
    });
    const conditions = [
      condition("PodScheduled", true),
      condition(
        "Initialized",
        main.some(({ startedAt }) => startedAt !== ""),
      ),
      condition("ContainersReady", isReady),
      condition("Ready", isReady),
    ];
    const of = (states: readonly ContainerState[]) => states.map((state) => statusOf(state));
    return {
      phase,
      conditions,
      startTime: this.#options.pod.status.startTime ?? new Date().toISOString(),
      podIP: this.address,
      podIPs: [{ ip: this.address }],
      containerStatuses: of(main),
      initContainerStatuses: of(this.#states.filter((state) => !this.#isMain(state))),
    };
  }

  /** Names of Services lead to the first pod behind them: enough for whoever looks one up once. */
  async #hostsFile(): Promise<string> {
    const { api, pod, hosts } = this.#options;
    const { namespace } = pod.metadata;
    const slices = await api.list(`/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`);
    const services = slices.flatMap(({ metadata, endpoints }) => {
      const service = metadata.labels?.["kubernetes.io/service-name"];
      const ready = (endpoints ?? []).find(({ conditions }: KubeObject) => conditions.ready);
      return service === undefined || ready === undefined
        ? []
        : [`${ready.addresses[0]} ${service} ${service}.${namespace}.svc`];
    });
    const named = Object.entries(hosts).map(([name, address]) => `${address} ${name}`);
    return ["127.0.0.1 localhost", ...named, ...services, ""].join("\n");
  }
}

function statusOf({ spec, running, startedAt, isStarted, isReady, restarts, exitCode, waiting }: ContainerState) {
  const terminated = {
    exitCode,
    startedAt,
    finishedAt: new Date().toISOString(),
    reason: exitCode === 0 ? "Completed" : "Error",
  };
  const state =
    running !== undefined ? { running: { startedAt } } : exitCode !== undefined ? { terminated } : { waiting };
  const { name, image } = spec;
  return { name, image, imageID: "", ready: isReady, started: isStarted, restartCount: restarts, state };
}

/** Of the image. */
const ENTRYPOINT = ["node", "/app/dist/roles/svc.js"];
const RETRY_MS = 500;
const REPORT_MS = 20;
