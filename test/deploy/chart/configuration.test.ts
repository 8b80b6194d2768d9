import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, test } from "@jest/globals";
import { load } from "js-yaml";
import { inspectConfig } from "../../../src/config/load.ts";
import { checkRoles } from "../../../src/config/roles.ts";
import { ROLES } from "../../../src/model/roles.ts";
import { inventory, type Manifest, named, podsOf } from "../../support/chart/manifests.ts";
import { CHART, forEach, RELEASE, render, VALUE_SETS } from "../../support/chart/render.ts";
import { useRenderedSets } from "../../support/chart/renderedSets.ts";
import { describeWithTools } from "../../support/describeWithTools.ts";
import { blocksOf } from "../../support/markdown.ts";
import { read } from "../../support/repository.ts";
import { type ConfigTree, merged } from "../../support/service.ts";

/** How the configuration and the credentials come from the values into the pods. */

const { fullname } = RELEASE;
const valuesOf = (file: string) => load(readFileSync(path.join(CHART, file), "utf8")) as Values;
const withoutNulls = (value: unknown): unknown =>
  JSON.parse(JSON.stringify(value, (_key, each: unknown) => (each === null ? undefined : each)));

interface Values {
  readonly config: ConfigTree;
  readonly configKind?: string;
  readonly migrations?: { readonly enabled?: boolean };
}

describeWithTools(["helm"], "the chart brings into the pods", () => {
  const sets = useRenderedSets();
  test.each(VALUE_SETS)("the configuration of %s as it stands in the values", (set) => {
    const { config, configKind, migrations } = valuesOf(`ci/${set}-values.yaml`);
    const pods = sets.servicePods(set);
    expect(pods.length).toBeGreaterThan(1);
    const { enabled } = (config.outbox as { capture?: { enabled?: boolean } } | undefined)?.capture ?? {};
    const filledIn = {
      ...(migrations?.enabled === false ? {} : { database: { migrate: false } }),
      ...(enabled === true ? { outbox: { capture: { stateDirectory: "/var/lib/svc/capture" } } } : {}),
    };
    const expected = withoutNulls(merged(merged(valuesOf("values.yaml").config, config), filledIn));
    for (const pod of pods) {
      expect([pod.of, load(sets.configuration(set, pod))]).toEqual([pod.of, expected]);
      expect(pod.spec.volumes[0]).toMatchObject(configKind === "Secret" ? { secret: {} } : { configMap: {} });
    }
  });

  test.each(VALUE_SETS)("a configuration of %s that svc takes, strictly, with the roles of each pod", (set) => {
    for (const pod of sets.servicePods(set)) {
      const { args, env = [] } = pod.container;
      const file = args.at(-1) ?? "";
      const readFile = (name: string) => (name === file ? sets.configuration(set, pod) : `content of ${name}`);
      const variables = Object.fromEntries(env.map(({ name, value }) => [name, value ?? `value of ${name}`]));
      const { loaded, problems, warnings } = inspectConfig({ env: variables, file, readFile });
      expect([pod.of, problems, warnings]).toEqual([pod.of, [], []]);
      const roles = ROLES.filter((role) => args.includes(role));
      expect(loaded && checkRoles(loaded.config, roles, true)).toEqual([]);
    }
  });

  test("by an object of another name when the configuration changes, and only then", async () => {
    const configs = (manifests: readonly Manifest[]) =>
      podsOf(manifests)
        .filter(({ kind }) => kind === "Deployment")
        .map(({ spec }) => spec.volumes[0]?.configMap?.name);
    const [before] = new Set(configs(sets.of("minimal")));
    expect(named(sets.of("minimal"), "ConfigMap", before ?? "")).toMatchObject({ immutable: true });
    const change = (set: Readonly<Record<string, unknown>>) => render({ values: ["minimal"], set });
    const [after, same] = await Promise.all([
      change({ "config.outbox.concurrency": 9 }),
      change({ "roleDefaults.replicas": 2 }),
    ]);
    expect(new Set(configs(after)).size).toBe(1);
    expect(configs(after)).not.toContain(before);
    expect(configs(same)).toEqual(configs(sets.of("minimal")));
  });

  test("credentials in Secrets alone", () => {
    for (const manifests of sets.all().map(([, each]) => each)) {
      const plain = manifests.filter(({ kind }) => kind !== "Secret").map((manifest) => JSON.stringify(manifest));
      expect(plain.filter((text) => text.includes("plain-"))).toEqual([]);
    }
    const secrets = sets.of("config-secret").filter(({ kind }) => kind === "Secret");
    expect(secrets.map(({ metadata }) => metadata.name)).toEqual([
      expect.stringMatching(`^${fullname}-config-`),
      `${fullname}-migrate`,
    ]);
    expect(secrets.every(({ stringData }) => stringData?.["svc.yml"]?.includes("plain-amqp-password"))).toBe(true);

    const { container, spec } = sets.pod("brokers", "ingest");
    expect(container.volumeMounts).toContainEqual({
      name: "secret-kafka",
      mountPath: "/etc/svc/secrets/kafka",
      readOnly: true,
    });
    expect(spec.volumes).toContainEqual({
      name: "secret-kafka",
      secret: { secretName: "svc-kafka", defaultMode: 0o440 },
    });
    expect(container.env).toContainEqual({
      name: "RABBITMQ_PASSWORD",
      valueFrom: { secretKeyRef: { name: "svc-rabbitmq", key: "password" } },
    });
  });

  test("a check and migrations before the pods, with an account of their own", async () => {
    const annotationsOf = (job: string) =>
      named(sets.of("migration-account"), "Job", `${fullname}-${job}`).metadata.annotations;
    const hook = { "helm.sh/hook": "pre-install,pre-upgrade", "helm.sh/hook-output-log-policy": "hook-failed" };
    expect(annotationsOf("migrate")).toEqual({
      ...hook,
      "helm.sh/hook-weight": "0",
      "helm.sh/hook-delete-policy": "before-hook-creation",
    });
    expect(annotationsOf("check")).toEqual({
      ...hook,
      "helm.sh/hook-weight": "-3",
      "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
    });
    const helpers = sets
      .of("migration-account")
      .filter(({ metadata }) => metadata.annotations?.["helm.sh/hook-weight"] === "-5");
    expect(helpers.map(({ kind, metadata }) => [kind, metadata.annotations?.["helm.sh/hook-delete-policy"]])).toEqual([
      ["ServiceAccount", "before-hook-creation"],
      ["ConfigMap", "before-hook-creation"],
    ]);
    const { container, metadata, spec } = sets.pod("migration-account", "migrate", "Job");
    const from = (key: string) => ({ valueFrom: { secretKeyRef: { name: "svc-database-owner", key } } });
    expect(container.env?.slice(1)).toEqual([
      { name: "SVC_DATABASE_USERNAME", ...from("user") },
      { name: "SVC_DATABASE_PASSWORD", ...from("pass") },
      { name: "SVC_DATABASE_STARTUPTIMEOUTMS", value: "30000" },
    ]);
    expect(metadata.annotations?.["sidecar.istio.io/inject"]).toBe("false");
    expect([spec.serviceAccountName, spec.restartPolicy]).toEqual([`${fullname}-migrate`, "Never"]);
    const jobsOf = (manifests: readonly Manifest[]) =>
      inventory(manifests).filter((name) => name.includes("-migrate") || name.startsWith("Job"));
    expect(jobsOf(sets.of("sqlserver"))).toEqual([
      `ConfigMap ${fullname}-migrate`,
      `Job ${fullname}-check`,
      `ServiceAccount ${fullname}-migrate`,
    ]);
    expect(jobsOf(await render({ values: ["sqlserver"], set: { "configCheck.enabled": false } }))).toEqual([]);
  });

  test("the values that README.md and docs/kubernetes.md show, on top of a database", async () => {
    const ofPlatforms = blocksOf(read("docs/kubernetes.md"), "yaml").filter((text) => text.startsWith("# values\n"));
    expect(ofPlatforms.length).toBeGreaterThan(3);
    const ofChart = blocksOf(read("helm/svc/README.md"), "yaml").filter((text) => !text.startsWith("# trial.yaml"));
    expect(ofChart.length).toBeGreaterThan(4);
    const parts = [...ofChart, ...ofPlatforms];
    const folder = mkdtempSync(path.join(tmpdir(), "svc-test-values-"));
    try {
      await forEach(parts, async (text) => {
        const file = path.join(folder, `${parts.indexOf(text)}.yaml`);
        writeFileSync(file, text);
        const values = text.startsWith("# values.yaml") ? [file] : ["minimal", file];
        expect(inventory(await render({ values }))).toContain(`Deployment ${fullname}-poller`);
      });
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
