import { setTimeout as sleep } from "node:timers/promises";
import { withTimeout } from "../../src/time/wait.ts";
import type { KubeObject } from "./api.ts";

export type ProbeResult = "passed" | "failed";

/**
 * Runs an HTTP probe of a container as its spec says, and tells what it has found after as many results in a row as thresholds ask for.
 *
 * @param container whose ports the probe may name
 * @returns when `onResult` says so, or the signal is aborted
 */
export async function probe(
  address: string,
  container: KubeObject,
  spec: KubeObject,
  signal: AbortSignal,
  onResult: (result: ProbeResult) => "go on" | "end",
): Promise<void> {
  const { httpGet, periodSeconds = 10, timeoutSeconds = 1, failureThreshold = 3, initialDelaySeconds = 0 } = spec;
  const named = container.ports.find(({ name }: KubeObject) => name === httpGet.port);
  const url = `http://${address}:${named?.containerPort ?? httpGet.port}${httpGet.path}`;
  let failures = 0;
  await pause(initialDelaySeconds * 1000, signal);
  while (!signal.aborted) {
    const isWell = await withTimeout(
      timeoutSeconds * 1000,
      `the probe of ${url}`,
      (limit) => ask(url, limit),
      signal,
    ).catch(() => false);
    if (signal.aborted) return;
    failures = isWell ? 0 : failures + 1;
    if (isWell || failures >= failureThreshold) {
      if (onResult(isWell ? "passed" : "failed") === "end") return;
    }
    await pause(periodSeconds * 1000, signal);
  }
}

async function ask(url: string, signal: AbortSignal): Promise<boolean> {
  const answer = await fetch(url, { signal });
  await answer.arrayBuffer();
  return answer.status < 400;
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch(() => {});
}
