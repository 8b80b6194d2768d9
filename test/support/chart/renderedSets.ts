import { beforeAll } from "@jest/globals";
import { configurationOf, type Manifest, type Pod, podsOf } from "./manifests.ts";
import { forEach, RELEASE, render, VALUE_SETS } from "./render.ts";

/** The objects of every value set, rendered once for the tests of a file. */
export interface RenderedSets {
  /** Name and objects of each value set. */
  all(): readonly (readonly [set: string, manifests: readonly Manifest[]])[];
  /** The objects of one. @throws Error when there is no such set */
  of(set: string): readonly Manifest[];
  /** The pod of a role's object, by default of its Deployment. @throws Error when there is none */
  pod(set: string, role: string, kind?: string): Pod;
  /** The pods that run `svc`: all but that of `helm test`. */
  servicePods(set: string): readonly Pod[];
  /** The text of the configuration that a pod mounts. */
  configuration(set: string, pod: Pod): string;
}

/** Call it at the top of a `describe` block. */
export function useRenderedSets(): RenderedSets {
  const rendered = new Map<string, readonly Manifest[]>();
  beforeAll(async () => {
    await forEach(VALUE_SETS, async (name) => {
      rendered.set(name, await render({ values: [name] }));
    });
  });

  const of = (set: string) => {
    const manifests = rendered.get(set);
    if (manifests === undefined) throw new Error(`there is no value set ${set}`);
    return manifests;
  };
  return {
    of,
    all: () => VALUE_SETS.map((set) => [set, of(set)]),
    pod(set, role, kind = "Deployment") {
      const pod = podsOf(of(set)).find((each) => each.of === `${kind} ${RELEASE.fullname}-${role}`);
      if (pod === undefined) throw new Error(`${set} has no ${kind} ${role}`);
      return pod;
    },
    servicePods: (set) => podsOf(of(set)).filter(({ kind }) => kind !== "Pod"),
    configuration: (set, pod) => configurationOf(pod, of(set)),
  };
}
