import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { freePort } from "../ports.ts";
import { configurationOf, type Manifest, type Pod } from "./manifests.ts";

/** Secrets of the cluster: name to key to value. */
export type ClusterSecrets = Readonly<Record<string, Readonly<Record<string, string>>>>;

/** A pod's container as a process of this machine. */
export interface PodProcess {
  /** Arguments of `svc`, paths mapped. */
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** The configuration that the process reads. */
  readonly configFile: string;
  /** URL of a probe: its path at the port that it names. */
  probe(probe: "startupProbe" | "livenessProbe" | "readinessProbe"): string;
  /** URL of a path at a port of the container. */
  at(portName: string, path: string): string;
}

/** The folders of a container that the tests map below a folder of their own. */
const MOUNTED = ["/etc/svc/svc.yml", "/etc/svc/secrets", "/var/lib/svc/capture"];

/**
 * What a kubelet would start for a pod: arguments and variables of its container, with the mounted files below `folder`. Ports are free ones of this machine, as
 * all pods share it.
 *
 * @throws Error when the pod asks for a Secret, a key or a mount that is not there
 */
export async function podProcess(
  pod: Pod,
  manifests: readonly Manifest[],
  secrets: ClusterSecrets,
  folder: string,
): Promise<PodProcess> {
  const mapped = (text: string) =>
    MOUNTED.reduce((result, mounted) => result.replaceAll(mounted, path.join(folder, mounted)), text);
  const secretValue = (name: string, key: string) => {
    const value = secrets[name]?.[key];
    if (value === undefined)
      throw new Error(`${pod.of} asks for the key ${key} of the Secret ${name}, which is not there`);
    return value;
  };
  const writeMounted = (file: string, content: string) => {
    const at = path.join(folder, file);
    mkdirSync(path.dirname(at), { recursive: true });
    writeFileSync(at, content);
  };

  for (const { name, mountPath, subPath } of pod.container.volumeMounts) {
    const volume = pod.spec.volumes.find((each) => each.name === name);
    if (subPath === "svc.yml") writeMounted(mountPath, mapped(configurationOf(pod, manifests)));
    else if (volume?.secret !== undefined) {
      for (const [key, value] of Object.entries(secrets[volume.secret.secretName] ?? {})) {
        writeMounted(path.join(mountPath, key), value);
      }
    } else if (volume?.persistentVolumeClaim !== undefined)
      mkdirSync(path.join(folder, mountPath), { recursive: true });
  }

  const env: Record<string, string> = {};
  for (const { name, value, valueFrom } of pod.container.env ?? []) {
    const from = valueFrom?.secretKeyRef;
    env[name] = from === undefined ? (value ?? "") : secretValue(from.name, from.key);
  }
  const ports = new Map<string, number>();
  for (const { name } of pod.container.ports ?? []) {
    const port = await freePort();
    ports.set(name, port);
    env[PORT_VARIABLES[name] ?? ""] = String(port);
  }
  const at = (portName: string, route: string) => {
    const port = ports.get(portName);
    if (port === undefined) throw new Error(`${pod.of} has no port ${portName}`);
    return `http://127.0.0.1:${port}${route}`;
  };
  return {
    args: pod.container.args.map(mapped),
    env,
    configFile: path.join(folder, "/etc/svc/svc.yml"),
    probe(probe) {
      const http = pod.container[probe]?.httpGet;
      if (http === undefined) throw new Error(`${pod.of} has no ${probe}`);
      return at(http.port, http.path);
    },
    at,
  };
}

const PORT_VARIABLES: Readonly<Record<string, string>> = {
  http: "SVC_SERVER_HTTPPORT",
  management: "SVC_SERVER_MANAGEMENTPORT",
};
