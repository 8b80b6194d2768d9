import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

export interface Pod {
  readonly name: string;
  readonly phase: "Pending" | "Running" | "Succeeded" | "Failed";
  /** Why its container waits, such as `ImagePullBackOff`; absent while it does not. */
  readonly waiting?: string;
}

export interface Job {
  readonly name: string;
  /** Unix times in seconds. */
  readonly startedAt: number;
  readonly completedAt?: number;
  readonly failed?: boolean;
}

export interface ClusterState {
  readonly pods: readonly Pod[];
  readonly jobs: readonly Job[];
}

/**
 * An exporter with the series that kube-state-metrics (v2) makes of pods and Jobs, as far as rules read them: the tests have no cluster. Names and
 * labels are those of its documentation; https://github.com/kubernetes/kube-state-metrics/tree/main/docs/metrics/workload
 */
export interface KubeStateMetrics {
  readonly port: number;
  /** What it shows from now on. */
  set(state: ClusterState): void;
  close(): Promise<void>;
}

/** @param namespace of everything it shows */
export async function startKubeStateMetrics(namespace: string): Promise<KubeStateMetrics> {
  let state: ClusterState = { pods: [], jobs: [] };
  const server = createServer((_, response) => {
    response.setHeader("content-type", "text/plain; version=0.0.4");
    const lines = [
      ...state.pods.flatMap((pod) => podSeries(namespace, pod)),
      ...state.jobs.flatMap((job) => jobSeries(namespace, job)),
    ];
    response.end(lines.map((line) => `${line}\n`).join(""));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    set: (next) => {
      state = next;
    },
    close: async () => {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

const PHASES = ["Pending", "Running", "Succeeded", "Failed", "Unknown"] as const;

function podSeries(namespace: string, { name, phase, waiting }: Pod): readonly string[] {
  const labels = { namespace, pod: name, uid: `uid-of-${name}` };
  return [
    ...PHASES.map((each) => series("kube_pod_status_phase", { ...labels, phase: each }, each === phase ? 1 : 0)),
    ...(waiting === undefined
      ? []
      : [series("kube_pod_container_status_waiting_reason", { ...labels, container: "svc", reason: waiting }, 1)]),
  ];
}

function jobSeries(namespace: string, { name, startedAt, completedAt, failed = false }: Job): readonly string[] {
  const labels = { namespace, job_name: name };
  return [
    series("kube_job_status_start_time", labels, startedAt),
    // It is set for a Job that succeeded, and for no other.
    ...(completedAt === undefined ? [] : [series("kube_job_status_completion_time", labels, completedAt)]),
    // The condition is there only for a Job that has it.
    ...(failed
      ? ["true", "false", "unknown"].map((condition) =>
          series("kube_job_failed", { ...labels, condition }, condition === "true" ? 1 : 0),
        )
      : []),
  ];
}

function series(name: string, labels: Readonly<Record<string, string>>, value: number): string {
  const pairs = Object.entries(labels).map(([label, text]) => `${label}=${JSON.stringify(text)}`);
  return `${name}{${pairs.join(",")}} ${value}`;
}
