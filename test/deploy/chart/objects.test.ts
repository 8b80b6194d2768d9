import { readFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "@jest/globals";
import { load } from "js-yaml";
import { ROLES, type Role } from "../../../src/model/roles.ts";
import { METRICS } from "../../../src/runtime/metricDefinitions.ts";
import { inventory, type Manifest, named, type Pod, podsOf } from "../../support/chart/manifests.ts";
import { CHART, RELEASE, type RenderOptions, render, renderNotes, renderUmbrella } from "../../support/chart/render.ts";
import { useRenderedSets } from "../../support/chart/renderedSets.ts";
import { describeWithTools } from "../../support/describeWithTools.ts";
import { read } from "../../support/repository.ts";
import type { AlertRule } from "../deployFiles.ts";

/** What single value sets make of the chart. */

const { fullname } = RELEASE;

describeWithTools(["helm"], "the chart renders", () => {
  const sets = useRenderedSets();
  const commandLines = (set: string) =>
    Object.fromEntries(podsOf(sets.of(set)).map(({ of, container }) => [of, container.args.join(" ")]));
  test("no more than is asked for", () => {
    expect(inventory(sets.of("minimal"))).toEqual([
      expect.stringMatching(`^ConfigMap ${fullname}-config-[0-9a-f]{10}$`),
      `ConfigMap ${fullname}-migrate`,
      `Deployment ${fullname}-ingest`,
      `Deployment ${fullname}-poller`,
      `Deployment ${fullname}-relay`,
      `Job ${fullname}-check`,
      `Job ${fullname}-migrate`,
      `Pod ${fullname}-test`,
      `Service ${fullname}`,
      `Service ${fullname}-metrics`,
      `ServiceAccount ${fullname}`,
      `ServiceAccount ${fullname}-migrate`,
    ]);
  });

  test("a Deployment for each role that the configuration switches on", () => {
    const file = "--config /etc/svc/svc.yml";
    expect(commandLines("all-roles")).toEqual({
      [`Deployment ${fullname}-ingest`]: `ingest ${file}`,
      [`Deployment ${fullname}-relay`]: `relay ${file}`,
      [`Deployment ${fullname}-poller`]: `poller ${file}`,
      [`Deployment ${fullname}-capture`]: `capture poller ${file}`,
      [`Deployment ${fullname}-retention`]: `retention ${file}`,
      [`Deployment ${fullname}-admin`]: `admin ${file}`,
      [`Job ${fullname}-check`]: `config check --strict ${file}`,
      [`Job ${fullname}-migrate`]: `migrate ${file}`,
      [`Pod ${fullname}-test`]: expect.stringContaining(`http://${fullname}-metrics:9090/health/ready`),
    });
    expect(commandLines("all-in-one")).toEqual({
      [`Deployment ${fullname}-all`]: `ingest relay poller capture admin ${file}`,
      [`CronJob ${fullname}-retention`]: `retention --once ${file}`,
      [`Job ${fullname}-check`]: `config check --strict ${file}`,
      [`Job ${fullname}-migrate`]: `migrate ${file}`,
      [`Pod ${fullname}-test`]: expect.stringContaining(`http://${fullname}-metrics:8080/health/ready`),
    });
    expect(Object.keys(commandLines("ingest-only"))).toEqual([
      `Deployment ${fullname}-ingest`,
      `Pod ${fullname}-test`,
      `Job ${fullname}-check`,
      `Job ${fullname}-migrate`,
    ]);
  });

  test("time enough to start and to stop", () => {
    const grace = (set: string, role: string) => sets.pod(set, role).spec.terminationGracePeriodSeconds;
    // 5 s for load balancers, 5 for requests, the workers' time, 10 for connections, 5 to spare.
    expect(grace("minimal", "poller")).toBe(5 + 5 + 30 + 10 + 5);
    expect(grace("one-port", "poller")).toBe(0 + 5 + 30 + 10 + 5);
    expect([grace("production", "ingest"), grace("production", "poller")]).toEqual([5 + 5 + 45 + 10 + 5, 90]);
    expect(sets.pod("minimal", "ingest").container.lifecycle?.preStop?.sleep?.seconds).toBe(5);
    expect(sets.pod("one-port", "ingest").container.lifecycle).toBeUndefined();
    const startSeconds = (set: string) => {
      const { startupProbe } = sets.pod(set, "ingest").container;
      return (startupProbe?.periodSeconds ?? 0) * (startupProbe?.failureThreshold ?? 0);
    };
    expect(startSeconds("minimal")).toBe(60 + 60);
    expect(startSeconds("sqlserver")).toBe(120 + 60);
  });

  test("one capture with its volume", () => {
    for (const [set, claim] of [
      ["capture", "svc-capture-state"],
      ["capture-claim", `${fullname}-capture`],
    ] as const) {
      const { owner, spec, container } = sets.pod(set, "capture");
      expect([owner.spec.replicas, owner.spec.strategy]).toEqual([1, { type: "Recreate" }]);
      expect(spec.volumes).toContainEqual({ name: "capture", persistentVolumeClaim: { claimName: claim } });
      expect(container.volumeMounts).toContainEqual({ name: "capture", mountPath: "/var/lib/svc/capture" });
    }
    expect(sets.of("capture").filter(({ kind }) => kind === "PersistentVolumeClaim")).toEqual([]);
    expect(named(sets.of("capture-claim"), "PersistentVolumeClaim", `${fullname}-capture`).spec).toEqual({
      accessModes: ["ReadWriteOncePod"],
      storageClassName: "fast",
      resources: { requests: { storage: "100Mi" } },
    });
    expect(sets.pod("capture-claim", "poller").owner.spec.replicas).toBe(2);
  });

  test("retention on schedule, one run at a time", () => {
    const { spec } = named(sets.of("retention-cronjob"), "CronJob", `${fullname}-retention`);
    expect(spec).toMatchObject({ schedule: "17 * * * *", concurrencyPolicy: "Forbid" });
    expect(inventory(sets.of("retention-cronjob"))).not.toContain(`Deployment ${fullname}-retention`);
    expect(sets.pod("retention-cronjob", "retention", "CronJob").container.resources.limits?.memory).toBe("256Mi");
  });

  test("Jobs that a refused configuration ends at once", () => {
    const refused = [{ action: "FailJob", onExitCodes: { containerName: "svc", operator: "In", values: [2] } }];
    const migrate = named(sets.of("minimal"), "Job", `${fullname}-migrate`).spec;
    const retention = named(sets.of("retention-cronjob"), "CronJob", `${fullname}-retention`).spec.jobTemplate.spec;
    for (const job of [migrate, retention]) {
      expect(job.podFailurePolicy).toEqual({ rules: refused });
      expect(job.template.spec.restartPolicy).toBe("Never");
    }
  });

  test("what a role says over what all roles have", () => {
    const ingest = sets.pod("production", "ingest");
    const poller = sets.pod("production", "poller");
    expect(poller.container.resources).toEqual({
      requests: { cpu: "1", memory: "256Mi", "ephemeral-storage": "128Mi" },
      limits: { memory: "2Gi" },
    });
    expect(ingest.container.resources.requests?.cpu).toBe("500m");
    expect(sets.pod("production", "retention").container.resources.requests?.cpu).toBe("100m");
    expect(ingest.owner.spec.replicas).toBeUndefined();
    const replicas = ["relay", "poller", "retention"].map((role) => sets.pod("production", role).owner.spec.replicas);
    expect(replicas).toEqual([2, 3, 1]);
    expect(ingest.metadata.labels?.team).toBe("orders");
    expect(ingest.metadata.annotations?.["example.com/owner"]).toBe("orders-team");
    expect(poller.spec).toMatchObject({
      priorityClassName: "business-critical",
      nodeSelector: { "kubernetes.io/os": "linux" },
      tolerations: [{ key: "dedicated" }],
      affinity: { podAntiAffinity: expect.anything() },
      topologySpreadConstraints: [{ labelSelector: { matchLabels: { "app.kubernetes.io/component": "poller" } } }],
    });
    const budgets = sets.of("production").filter(({ kind }) => kind === "PodDisruptionBudget");
    expect(
      Object.fromEntries(
        budgets.map(({ metadata, spec }) => [metadata.name, spec.minAvailable ?? spec.maxUnavailable]),
      ),
    ).toEqual({
      [`${fullname}-ingest`]: 1,
      [`${fullname}-relay`]: "50%",
      [`${fullname}-poller`]: 1,
    });
  });

  test("an HTTPRoute to the inbox and pull routes and to nothing else", () => {
    const { spec } = named(sets.of("gateway"), "HTTPRoute", fullname);
    const toPath = (value: string) => ({ path: { type: "PathPrefix", value } });
    expect(spec).toEqual({
      parentRefs: [{ name: "public", namespace: "gateways", sectionName: "https" }],
      hostnames: ["inbox.example.com"],
      rules: [{ matches: [toPath("/inbox"), toPath("/pull")], backendRefs: [{ name: fullname, port: 8080 }] }],
    });
  });

  test("an Ingress to the inbox and pull routes and to nothing else", () => {
    const { spec } = named(sets.of("production"), "Ingress", fullname);
    const [rule] = spec.rules;
    expect([spec.ingressClassName, rule.host, spec.tls[0].secretName]).toEqual([
      "nginx",
      "inbox.example.com",
      "inbox-tls",
    ]);
    expect(rule.http.paths.map((each: { path: string }) => each.path)).toEqual(["/inbox", "/take"]);
    expect(rule.http.paths[0].backend.service).toEqual({ name: fullname, port: { name: "http" } });
  });

  test("policies that let in the named peers, each to its port", () => {
    const operators = named(sets.of("production"), "NetworkPolicy", fullname).spec;
    const test = { podSelector: { matchLabels: expect.objectContaining({ "app.kubernetes.io/component": "test" }) } };
    const namespace = (name: string) => ({
      namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": name } },
    });
    expect(operators.policyTypes).toEqual(["Ingress"]);
    expect(operators.ingress).toEqual([
      { from: [test, namespace("monitoring")], ports: [{ port: "management", protocol: "TCP" }] },
    ]);
    const data = named(sets.of("production"), "NetworkPolicy", `${fullname}-data`).spec;
    expect(data.ingress).toEqual([
      { from: [test, namespace("ingress-nginx")], ports: [{ port: "http", protocol: "TCP" }] },
    ]);

    const bounded = named(sets.of("ingest-only"), "NetworkPolicy", fullname).spec;
    expect(bounded.policyTypes).toEqual(["Ingress", "Egress"]);
    expect(bounded.egress).toContainEqual({ to: [{ ipBlock: { cidr: "10.0.0.0/16" } }], ports: [{ port: 5432 }] });
    expect(named(sets.of("ingest-only"), "NetworkPolicy", `${fullname}-data`).spec.ingress[0].from).toBeUndefined();
  });

  test("autoscaling by load", () => {
    expect(named(sets.of("production"), "HorizontalPodAutoscaler", `${fullname}-ingest`).spec).toMatchObject({
      minReplicas: 3,
      maxReplicas: 12,
      metrics: [
        { resource: { name: "cpu", target: { averageUtilization: 75 } } },
        { resource: { name: "memory", target: { averageUtilization: 80 } } },
      ],
      behavior: { scaleDown: { stabilizationWindowSeconds: 300 } },
    });
    // Two replicas without autoscaling, and at least 1 by default.
    expect(named(sets.of("gateway"), "HorizontalPodAutoscaler", `${fullname}-poller`).spec).toMatchObject({
      minReplicas: 2,
      metrics: [{ external: { metric: { name: METRICS.destinationDue.name } } }],
    });
  });

  test("autoscaling by what waits, in metrics that the scaled pods have", () => {
    const queriesOf = (role: string) =>
      named(sets.of("keda"), "ScaledObject", `${fullname}-${role}`).spec.triggers.map(
        ({ metadata }: { metadata: Record<string, string> }) => [metadata.query, metadata.threshold],
      );
    expect(queriesOf("poller")).toEqual([
      ['sum(max by (cell, destination) (svc_destination_due{job="svc"}))', "5000"],
      [
        'max(svc_destination_oldest_age_seconds{job="svc"} and on (instance, cell, destination) svc_destination_due{job="svc"} > 0)',
        "60",
      ],
    ]);
    const ofRelease = `namespace="${RELEASE.namespace}",service="${fullname}-metrics"`;
    expect(queriesOf("relay")).toEqual([[`max(svc_inbox_oldest_pending_age_seconds{${ofRelease}})`, "30"]]);
    expect(
      named(sets.of("keda"), "ScaledObject", `${fullname}-ingest`).spec.triggers.map(
        ({ type }: { type: string }) => type,
      ),
    ).toEqual(["rabbitmq"]);
    for (const role of ["poller", "relay"] as const) {
      for (const [query] of queriesOf(role)) {
        const metric = Object.values(METRICS).find(({ name }) => query.includes(`(${name}{`));
        const roles: readonly Role[] = metric?.roles ?? [];
        expect([query, roles.includes(role)]).toEqual([query, true]);
      }
    }
  });

  test("monitoring of all pods, and the alerts with links to their runbooks", () => {
    const monitor = named(sets.of("production"), "ServiceMonitor", fullname);
    const service = named(sets.of("production"), "Service", `${fullname}-metrics`);
    expect(service.metadata.labels).toMatchObject(monitor.spec.selector.matchLabels);
    expect(service.spec.ports.map(({ name }: { name: string }) => name)).toEqual([monitor.spec.endpoints[0].port]);
    expect(monitor.metadata.labels?.release).toBe("prometheus");

    const groups = ["alerts.yml", "alerts-kubernetes.yml"].flatMap((file) => {
      const rules = readFileSync(path.join(CHART, "files", file), "utf8");
      return (load(rules) as { readonly groups: readonly unknown[] }).groups;
    });
    const linked = JSON.stringify({ groups })
      .replaceAll("docs/runbook.md#", "https://wiki.example.com/svc/runbook#")
      .replaceAll("NAMESPACE", monitor.metadata.namespace ?? "")
      .replaceAll("FULLNAME", fullname);
    expect(named(sets.of("production"), "PrometheusRule", fullname).spec).toEqual(JSON.parse(linked));
    expect(linked).toContain("https://wiki.example.com/svc/runbook#");
    expect(linked).toContain(`namespace=\\"${monitor.metadata.namespace}\\", job_name=~\\"${fullname}-retention-.+`);
  });

  const rulesOf = (manifests: readonly Manifest[]): readonly AlertRule[] =>
    named(manifests, "PrometheusRule", fullname).spec.groups.flatMap(({ rules }: { rules: AlertRule[] }) => rules);

  test("alerts left out, and with another threshold, wait and severity", () => {
    const changed = rulesOf(sets.of("gateway"));
    const original = rulesOf(sets.of("production"));
    const from = (alert: string) => original.find((rule) => rule.alert === alert) as AlertRule;
    const to = (alert: string, threshold: RegExp, number: string) => from(alert).expr.replaceAll(threshold, number);
    expect(changed.map(({ alert }) => alert)).toEqual(
      original.map(({ alert }) => alert).filter((alert) => alert !== "SvcDeadMessages"),
    );
    const exprOf = (alert: string) => changed.find((rule) => rule.alert === alert)?.expr;
    expect(exprOf("SvcOutboxStuck")).toBe(to("SvcOutboxStuck", /> 900\b/g, "> 3600"));
    expect(exprOf("SvcCaptureLag")).toBe(to("SvcCaptureLag", /> 30\b/g, "> 120"));
    expect(exprOf("SvcRetentionNotRunning")).toBe(to("SvcRetentionNotRunning", /> 6 \* 3600\b/g, "> 7200"));
    expect(changed.find(({ alert }) => alert === "SvcParkedRows")).toEqual({
      ...from("SvcParkedRows"),
      expr: to("SvcParkedRows", /> 0/g, "> 10"),
      for: "1h",
      labels: { severity: "critical" },
      annotations: { ...from("SvcParkedRows").annotations, runbook_url: "docs/runbook.md#svcparkedrows" },
    });
  });

  test("one threshold in each alert that compares with a number", async () => {
    const names = rulesOf(sets.of("production")).flatMap(({ alert, expr }) => (/> \d/.test(expr) ? [alert] : []));
    const alerts = Object.fromEntries(names.map((alert) => [alert, { threshold: 12345 }]));
    const changed = rulesOf(await render({ values: ["production"], set: { "prometheusRule.alerts": alerts } }));
    const numbersOf = (expr: string) => [...new Set(expr.match(/> [\d.e* ]*\d/g))].filter((each) => each !== "> 0");
    const thresholds = changed.map(({ alert, expr }) => [alert, numbersOf(expr)] as const);
    expect(thresholds.filter(([, { length }]) => length > 0)).toEqual(names.map((alert) => [alert, ["> 12345"]]));
  });

  test("the dashboard as a ConfigMap that Grafana's sidecar finds", () => {
    const { metadata, data = {} } = named(sets.of("production"), "ConfigMap", `${fullname}-dashboard`);
    expect(metadata.labels).toMatchObject({ grafana_dashboard: "1" });
    expect(metadata.annotations).toEqual({ grafana_folder: "Messaging" });
    expect(data).toEqual({ "svc-dashboard.json": read("deploy/grafana/svc-dashboard.json") });
    expect(sets.of("minimal").filter(({ metadata: { name } }) => name === `${fullname}-dashboard`)).toEqual([]);
  });

  test("pods and objects by the selectors and names of the runbook", () => {
    const manifests = ["all-roles", "retention-cronjob"].flatMap((set) => sets.of(set));
    const runbook = read("docs/runbook.md").replaceAll("FULLNAME", fullname).replaceAll("RELEASE", RELEASE.name);
    const selectors = [...runbook.matchAll(/kubectl [^`\n]* -l (\S+?)[`\s]/g)].map(([, selector = ""]) => selector);
    const objects = [...runbook.matchAll(new RegExp(`(deployment|cronjob)[ /](${fullname}-\\w+)`, "g"))];

    expect(selectors.length).toBeGreaterThan(2);
    for (const selector of new Set(selectors)) {
      const labels = Object.fromEntries(selector.split(",").map((each) => each.split("=")));
      expect([selector, podsOf(manifests).map(({ metadata }) => metadata.labels)]).toEqual([
        selector,
        expect.arrayContaining([expect.objectContaining(labels)]),
      ]);
    }
    expect(objects.length).toBeGreaterThan(3);
    for (const [, kind = "", name = ""] of objects) {
      const found = manifests.filter(({ metadata }) => metadata.name === name).map((each) => each.kind.toLowerCase());
      expect([name, found]).toEqual([name, expect.arrayContaining([kind])]);
    }
  });

  test("the rules for Kubernetes name every component that has pods, and the CronJob of retention", () => {
    const rules = readFileSync(path.join(CHART, "files", "alerts-kubernetes.yml"), "utf8");
    const [, components = ""] = /FULLNAME-\(([a-z|]+)\)-/.exec(rules) ?? [];
    expect(components.split("|").sort()).toEqual(["all", ...ROLES].sort());
    expect(named(sets.of("retention-cronjob"), "CronJob", `${fullname}-retention`)).toBeDefined();
  });

  test("names, image and account of the platform's", () => {
    const pods = podsOf(sets.of("platform"));
    expect(pods.map(({ of }) => of)).toContain("Deployment relay-poller");
    expect(sets.of("platform").filter(({ kind }) => kind === "ServiceAccount")).toEqual([]);
    for (const { container, spec, kind } of pods) {
      expect(container.image).toMatch(/^registry\.example\.com\/platform\/svc-relay@sha256:[0-9a-f]{64}$/);
      expect(spec.imagePullSecrets).toEqual([{ name: "registry" }]);
      expect(spec.securityContext).not.toHaveProperty("runAsUser");
      if (kind !== "Pod") expect(spec.serviceAccountName).toBe("messaging");
    }
    expect(sets.pod("minimal", "ingest").container.image).toBe("svc-relay:0.1.0");
    expect(named(sets.of("production"), "Service", fullname).metadata.labels?.["app.kubernetes.io/part-of"]).toBe(
      "shop",
    );
  });

  test("containers of the platform beside svc, in Jobs only containers that end", () => {
    const containersOf = ({ spec }: Pod) =>
      [spec.initContainers ?? [], spec.containers].map((containers) => containers.map(({ name }) => name));
    const ingest = sets.pod("sidecars", "ingest");
    expect(containersOf(ingest)).toEqual([["database-proxy"], ["svc", "log-shipper"]]);
    for (const job of [sets.pod("sidecars", "migrate", "Job"), sets.pod("sidecars", "retention", "CronJob")]) {
      expect(containersOf(job)).toEqual([["database-proxy"], ["svc"]]);
    }
    expect(ingest.spec.initContainers).toMatchObject([{ restartPolicy: "Always" }]);
    expect(ingest.owner.spec).toMatchObject({ minReadySeconds: 15, revisionHistoryLimit: 2 });
    const plain = sets.pod("minimal", "ingest");
    expect(Object.keys(plain.spec)).not.toContain("initContainers");
    expect(["minReadySeconds", "revisionHistoryLimit"].filter((key) => key in plain.owner.spec)).toEqual([]);
  });

  test("how pods resolve names, that of the test too, with its labels and annotations", () => {
    const pods = podsOf(sets.of("sidecars"));
    expect(pods.length).toBeGreaterThan(4);
    for (const { of, spec } of pods) {
      expect([of, spec]).toEqual([
        of,
        expect.objectContaining({
          hostAliases: [{ ip: "192.0.2.7", hostnames: ["receiver.legacy.example.com"] }],
          dnsPolicy: "None",
          dnsConfig: { nameservers: ["192.0.2.53"], options: [{ name: "ndots", value: "2" }] },
        }),
      ]);
    }
    const { metadata } = sets.pod("sidecars", "test", "Pod");
    expect(metadata.labels).toMatchObject({ team: "orders", "app.kubernetes.io/component": "test" });
    expect(metadata.annotations).toMatchObject({ "sidecar.istio.io/inject": "false", "helm.sh/hook": "test" });
  });

  test("further objects, maps as they stand and strings as templates", () => {
    expect(named(sets.of("sidecars"), "ConfigMap", "as-it-stands").data).toEqual({ template: "{{ .username }}" });
    const extra = named(sets.of("sidecars"), "ConfigMap", `${fullname}-extra`);
    expect([extra.metadata.namespace, extra.data]).toEqual([RELEASE.namespace, { release: RELEASE.name }]);
  });

  test("the cells in which its pods work, beside a retention that runs once", async () => {
    const objects = await render({ values: ["retention-cronjob"], set: { cells: ["a", "b"] } });
    const commands = podsOf(objects).map(({ of, container }) => [of, container.args.join(" ")]);
    const file = "--cells a,b --config /etc/svc/svc.yml";
    expect(Object.fromEntries(commands)).toMatchObject({
      [`Deployment ${fullname}-relay`]: `relay ${file}`,
      [`CronJob ${fullname}-retention`]: `retention --once ${file}`,
      [`Job ${fullname}-migrate`]: "migrate --config /etc/svc/svc.yml",
    });
  });

  test("as a part of another chart, when that one's condition says so", async () => {
    const ofUmbrella = async (enabled: boolean) => inventory(await renderUmbrella(enabled, ["minimal"]));
    expect(await ofUmbrella(true)).toEqual(inventory(sets.of("minimal")));
    expect(await ofUmbrella(false)).toEqual([]);
  });

  test("the connections that a release may open, as notes tell them", async () => {
    const connections = async (options: RenderOptions) =>
      /up to (\d+) connections to the database(.*)/.exec(await renderNotes(options))?.slice(1);
    expect(await connections({ values: ["production"], set: { "database.maxConnections": 444 } })).toEqual([
      "444",
      " of the 444 of database.maxConnections.",
    ]);
    // Ingest and relay one pod, the CronJob another, two of the first while they are replaced; pollers with LISTEN. The pool has 10.
    const [retention] = (await connections({ values: ["retention-cronjob"] })) ?? [];
    expect(Number(retention)).toBe(2 * 10 + 2 * 10 + 2 * 11 + 10);
    // Nothing listens on SQL Server, and capture is never there twice.
    expect((await connections({ values: ["sqlserver"] }))?.[0]).toBe("60");
    expect((await connections({ values: ["all-in-one"] }))?.[0]).toBe(String(11 + 10));
    // biome-ignore lint/suspicious/noTemplateCurlyInString: a placeholder of the configuration
    const unknown = { "config.database.poolSize": "${POOL_SIZE:-10}" };
    expect(await connections({ values: ["minimal"], set: unknown })).toBeUndefined();
  });

  test("notes that name what is there", async () => {
    const [all, none] = await Promise.all([
      renderNotes({ values: ["all-roles"] }),
      renderNotes({ values: ["capture"] }),
    ]);
    expect(all).toContain(`kubectl -n ${RELEASE.namespace} port-forward service/${fullname} 8080:8080`);
    expect(all).toContain("http://localhost:8080/inbox/orders");
    expect(all).toContain("the credentials of config.sources.orders.auth");
    for (const command of ["status", "trace 1"])
      expect(all).toContain(`exec deployment/${fullname}-ingest -- svc ${command}`);
    expect(all).toContain("http://localhost:9090/console");
    for (const [text, set] of [
      [all, "all-roles"],
      [none, "capture"],
    ] as const) {
      const objects = [...text.matchAll(/\b(deployment|service|job)\/(\S+)/g)].map(
        ([, kind, name]) => `${kind} ${name}`,
      );
      expect(objects.length).toBeGreaterThan(0);
      expect(inventory(sets.of(set)).map((each) => each.toLowerCase())).toEqual(expect.arrayContaining(objects));
    }
    expect(none).toContain("INSERT INTO outbox (topic, payload)");
  });
});
