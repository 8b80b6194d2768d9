import { chmodSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Api, KubeObject } from "./api.ts";
import type { Mount } from "./container.ts";

/** What a container of a pod gets from the objects of its namespace: files and variables. */

/**
 * Writes the pod's volumes below `folder`.
 *
 * @returns the mounts of a container
 * @throws Error where an object or a key is not there, as long as it is not
 */
export async function mountsOf(
  api: Api,
  pod: KubeObject,
  container: KubeObject,
  folder: string,
): Promise<readonly Mount[]> {
  const { securityContext = {}, volumes = [] } = pod.spec;
  const isRootReadOnly = container.securityContext?.readOnlyRootFilesystem === true;
  if (!isRootReadOnly) throw new Error(`the container ${container.name} of ${pod.metadata.name} may write to its root`);
  const mounts: Mount[] = [];
  for (const { name, mountPath, subPath, readOnly } of container.volumeMounts ?? []) {
    const volume = volumes.find((each: KubeObject) => each.name === name);
    const at = path.join(folder, name);
    const isWritable = volume.emptyDir !== undefined || volume.persistentVolumeClaim !== undefined;
    if (!existsSync(at)) {
      mkdirSync(at, { recursive: true });
      if (isWritable) chmodSync(at, 0o777);
      for (const [key, text] of Object.entries(await filesOf(api, pod.metadata.namespace, volume))) {
        writeFileSync(path.join(at, key), text);
      }
    }
    mounts.push({
      from: subPath === undefined ? at : path.join(at, subPath),
      to: mountPath,
      isWritable: isWritable && !readOnly,
    });
  }
  if (securityContext.runAsNonRoot !== true) throw new Error(`${pod.metadata.name} may run as root`);
  return mounts;
}

async function filesOf(
  api: Api,
  namespace: string,
  { configMap, secret }: KubeObject,
): Promise<Record<string, Buffer | string>> {
  if (configMap !== undefined)
    return (await api.get(`/api/v1/namespaces/${namespace}/configmaps/${configMap.name}`)).data ?? {};
  if (secret === undefined) return {};
  return await secretOf(api, namespace, secret.secretName);
}

async function secretOf(api: Api, namespace: string, name: string): Promise<Record<string, Buffer>> {
  const { data = {} } = await api.get(`/api/v1/namespaces/${namespace}/secrets/${name}`);
  return Object.fromEntries(Object.entries(data).map(([key, text]) => [key, Buffer.from(String(text), "base64")]));
}

/** The variables of a container. @throws Error as {@link mountsOf} */
export async function variablesOf(api: Api, pod: KubeObject, container: KubeObject, address: string) {
  const { namespace } = pod.metadata;
  const env: Record<string, string> = { HOSTNAME: pod.metadata.name, NODE_ENV: "production" };
  for (const { name, value, valueFrom } of container.env ?? []) {
    if (valueFrom?.secretKeyRef !== undefined) {
      const { name: secret, key } = valueFrom.secretKeyRef;
      const found = (await secretOf(api, namespace, secret))[key];
      if (found === undefined) throw new Error(`the Secret ${secret} has no key ${key}`);
      env[name] = found.toString();
    } else if (valueFrom?.fieldRef !== undefined) {
      env[name] = fieldOf(pod, address, valueFrom.fieldRef.fieldPath);
    } else env[name] = value ?? "";
  }
  return env;
}

function fieldOf(pod: KubeObject, address: string, field: string): string {
  const fields: Record<string, string> = {
    "metadata.name": pod.metadata.name,
    "metadata.namespace": pod.metadata.namespace,
    "spec.nodeName": pod.spec.nodeName,
    "status.podIP": address,
  };
  const value = fields[field];
  if (value === undefined) throw new Error(`the field ${field} is not known here`);
  return value;
}
