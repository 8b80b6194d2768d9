/** Kubernetes objects, as far as the tests of the chart look into them. */

export interface Metadata {
  readonly name: string;
  readonly namespace?: string;
  readonly labels?: Labels;
  readonly annotations?: Labels;
}

export type Labels = Readonly<Record<string, string>>;

export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: Metadata;
  readonly data?: Readonly<Record<string, string>>;
  readonly stringData?: Readonly<Record<string, string>>;
  // biome-ignore lint/suspicious/noExplicitAny: the schemas of Kubernetes hold the shape, in test/deploy/chart/valueSets.test.ts
  readonly spec?: any;
}

export interface EnvironmentVariable {
  readonly name: string;
  readonly value?: string;
  readonly valueFrom?: { readonly secretKeyRef?: { readonly name: string; readonly key: string } };
}

export interface Probe {
  readonly httpGet: { readonly path: string; readonly port: string };
  readonly periodSeconds: number;
  readonly failureThreshold: number;
}

export interface Container {
  readonly name: string;
  readonly image: string;
  readonly command?: readonly string[];
  readonly args: readonly string[];
  readonly env?: readonly EnvironmentVariable[];
  readonly ports?: readonly { readonly name: string; readonly containerPort: number }[];
  readonly securityContext: Readonly<Record<string, unknown>>;
  readonly resources: { readonly limits?: Labels; readonly requests?: Labels };
  readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string; readonly subPath?: string }[];
  readonly startupProbe?: Probe;
  readonly livenessProbe?: Probe;
  readonly readinessProbe?: Probe;
  readonly lifecycle?: { readonly preStop?: { readonly sleep?: { readonly seconds: number } } };
}

export interface Volume {
  readonly name: string;
  readonly configMap?: { readonly name: string };
  readonly secret?: { readonly secretName: string };
  readonly persistentVolumeClaim?: { readonly claimName: string };
  readonly emptyDir?: object;
}

export interface PodSpec {
  readonly serviceAccountName?: string;
  readonly automountServiceAccountToken?: boolean;
  readonly enableServiceLinks?: boolean;
  readonly restartPolicy?: string;
  readonly securityContext: Readonly<Record<string, unknown>>;
  readonly terminationGracePeriodSeconds?: number;
  readonly initContainers?: readonly Container[];
  readonly containers: readonly Container[];
  readonly volumes: readonly Volume[];
  readonly [key: string]: unknown;
}

/** A pod that an object makes. */
export interface Pod {
  /** Kind and name of that object, such as `Deployment shop-svc-relay`. */
  readonly of: string;
  readonly kind: string;
  readonly owner: Manifest;
  readonly metadata: Metadata;
  readonly spec: PodSpec;
  /** Its one container. */
  readonly container: Container;
}

/** Every pod that the objects make, those of hooks and tests included. */
export function podsOf(manifests: readonly Manifest[]): Pod[] {
  return manifests.flatMap((owner) => {
    const template = podTemplateOf(owner);
    const container = template?.spec.containers[0];
    if (template === undefined || container === undefined) return [];
    const { kind, metadata } = owner;
    return [
      { of: `${kind} ${metadata.name}`, kind, owner, metadata: template.metadata, spec: template.spec, container },
    ];
  });
}

function podTemplateOf({ kind, metadata, spec }: Manifest): { metadata: Metadata; spec: PodSpec } | undefined {
  if (kind === "Pod") return { metadata, spec };
  if (kind === "CronJob") return spec.jobTemplate.spec.template;
  return kind === "Deployment" || kind === "Job" ? spec.template : undefined;
}

/** The one object of a kind and name. @throws Error when there is none */
export function named(manifests: readonly Manifest[], kind: string, name: string): Manifest {
  const found = manifests.find((manifest) => manifest.kind === kind && manifest.metadata.name === name);
  if (found !== undefined) return found;
  const there = manifests.map((manifest) => `${manifest.kind} ${manifest.metadata.name}`);
  throw new Error(`there is no ${kind} ${name} among ${there.join(", ")}`);
}

/** Kind and name of each object, sorted. */
export function inventory(manifests: readonly Manifest[]): string[] {
  return manifests.map(({ kind, metadata }) => `${kind} ${metadata.name}`).sort();
}

/** Whether labels hold everything that a selector asks for. */
export function matches(selector: Labels, labels: Labels = {}): boolean {
  return Object.entries(selector).every(([key, value]) => labels[key] === value);
}

/** The text of the configuration that a pod mounts. @throws Error when no object of the release holds it */
export function configurationOf(pod: Pod, manifests: readonly Manifest[]): string {
  const volume = pod.spec.volumes.find(({ name }) => name === "config");
  const [kind, name] = volume?.configMap
    ? ["ConfigMap", volume.configMap.name]
    : ["Secret", volume?.secret?.secretName ?? ""];
  const { data, stringData } = named(manifests, kind, name);
  const text = (data ?? stringData)?.["svc.yml"];
  if (text === undefined) throw new Error(`${kind} ${name} has no svc.yml`);
  return text;
}
