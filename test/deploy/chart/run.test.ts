import { writeFileSync } from "node:fs";
import path from "node:path";
import { beforeAll, expect, test } from "@jest/globals";
import { loadAll } from "js-yaml";
import { type Manifest, named, type Pod, podsOf } from "../../support/chart/manifests.ts";
import { type ClusterSecrets, type PodProcess, podProcess } from "../../support/chart/podProcess.ts";
import { render } from "../../support/chart/render.ts";
import type { TestDatabase } from "../../support/databases.ts";
import { describeWithTools } from "../../support/describeWithTools.ts";
import { eventually } from "../../support/eventually.ts";
import { codeBlocks } from "../../support/markdown.ts";
import { freePort } from "../../support/ports.ts";
import type { RunningProcess } from "../../support/processes.ts";
import { read } from "../../support/repository.ts";
import { useServices } from "../../support/service.ts";

/** What the chart renders, run: the command line, the variables and the configuration of each pod, with the real `svc` over a real PostgreSQL. */

interface Started {
  readonly pod: Pod;
  readonly as: PodProcess;
  readonly process: RunningProcess;
}

describeWithTools(["helm"], "the pods of the chart run", () => {
  const services = useServices("block");
  let database: TestDatabase;
  let secrets: ClusterSecrets;

  beforeAll(async () => {
    database = await services.database();
    secrets = {
      "svc-database": { username: database.user, password: database.password },
      "svc-senders": { "orders-key": "key of the senders" },
      "svc-billing": { "api-key": "key of the receiver" },
      "svc-admin": { token: "token of the operators" },
    };
  });

  const renderWith = (values: string, set: Readonly<Record<string, unknown>> = {}) =>
    render({ values: [values], set: { "config.database.url": database.directJdbcUrl, ...set } });

  const start = async (pod: Pod, manifests: readonly Manifest[]): Promise<Started> => {
    const as = await podProcess(pod, manifests, secrets, services.folder());
    return { pod, as, process: services.processes.svc(as.args, { env: as.env }) };
  };

  /** Runs a pod that ends by itself. */
  const runToEnd = async (pod: Pod, manifests: readonly Manifest[]) => {
    const { process } = await start(pod, manifests);
    const { code } = await process.exited;
    return { code, output: process.lines.join("\n") };
  };

  /** Resolves when the readiness probe of the pod passes, with what it answers. */
  const isReady = async ({ pod, as, process }: Started) => {
    await process.waitForLine(/"msg":"ready"/, 30_000);
    return await eventually(
      async () => {
        const answer = await fetch(as.probe("readinessProbe"));
        expect(answer.status).toBe(200);
        return Object.keys(((await answer.json()) as { components: object }).components);
      },
      { label: `readiness of ${pod.of}` },
    );
  };

  /** A stop as Kubernetes asks for it, at the end of each test, so that the next one has the machine for itself. */
  const stopAll = async (started: readonly Started[]) => {
    for (const { process } of started) process.kill("SIGTERM");
    for (const { pod, process } of started) {
      expect([pod.of, await process.exited]).toEqual([pod.of, { code: 0, signal: null }]);
    }
  };

  const isCheckedStrictly = async ({ as }: Started) => {
    const check = services.processes.svc(["config", "check", "--strict", "--config", as.configFile], { env: as.env });
    expect([await check.exited, check.lines]).toEqual([{ code: 0, signal: null }, expect.anything()]);
  };

  const ofKind = (manifests: readonly Manifest[], kind: string) => podsOf(manifests).filter((pod) => pod.kind === kind);
  const only = (pods: readonly Pod[]): Pod => {
    expect(pods.map(({ of }) => of)).toHaveLength(1);
    return pods[0] as Pod;
  };

  /** The pod of a hook's Job. */
  const jobOf = (manifests: readonly Manifest[], name: string) =>
    only(ofKind(manifests, "Job").filter(({ of }) => of.endsWith(`-${name}`)));

  test("the check and migrations first, then each role in a process of its own, and a message goes through", async () => {
    const receiver = await services.receiver();
    const manifests = await renderWith("all-roles", { "config.destinations.billing.baseUrl": receiver.url });
    for (const [job, said] of [
      ["check", "configuration is valid"],
      ["migrate", "migrations applied"],
    ] as const) {
      expect(await runToEnd(jobOf(manifests, job), manifests)).toEqual({
        code: 0,
        output: expect.stringContaining(said),
      });
    }

    const started = await Promise.all(ofKind(manifests, "Deployment").map((pod) => start(pod, manifests)));
    const components = await Promise.all(
      started.map(
        async (each) => [each.pod.metadata.labels?.["app.kubernetes.io/component"], await isReady(each)] as const,
      ),
    );
    expect(Object.fromEntries(components)).toEqual({
      ingest: ["database"],
      relay: ["database", "inbox-relay"],
      poller: ["database", "outbox-poller"],
      capture: ["database", "outbox-poller", "outbox-capture"],
      retention: ["database", "retention-service"],
      admin: ["database"],
    });
    for (const each of started) {
      expect((await fetch(each.as.probe("livenessProbe"))).status).toBe(200);
      expect((await fetch(each.as.probe("startupProbe"))).status).toBe(200);
    }
    const byRole = (role: string) => started.find(({ pod }) => pod.of.endsWith(`-${role}`)) as Started;
    await isCheckedStrictly(byRole("ingest"));

    const ingest = byRole("ingest").as;
    const answer = await fetch(ingest.at("http", "/inbox/orders"), {
      method: "POST",
      headers: { "content-type": "application/json", "x-api-key": "key of the senders" },
      body: JSON.stringify({ id: "17", type: "created", customer: { id: "c-1" } }),
    });
    expect(answer.status).toBe(202);
    const [request] = await receiver.received(1);
    expect(JSON.parse(request?.body.toString() ?? "")).toEqual({
      id: "17",
      type: "created",
      customer: { id: "c-1" },
      via: "svc",
    });
    expect(request?.headers["x-api-key"]).toBe("key of the receiver");

    // The receiver has the message a moment before its row is settled.
    await eventually(async () => {
      const replay = await fetch(byRole("admin").as.at("management", "/admin/replay"), {
        method: "POST",
        headers: { authorization: "Bearer token of the operators" },
        body: JSON.stringify({ topic: "created" }),
      });
      expect([replay.status, await replay.json()]).toEqual([200, { moved: 1 }]);
    });
    await receiver.received(2);

    // The pod of "helm test" asks the Services; here each of them is one process.
    const { container } = only(ofKind(manifests, "Pod"));
    expect(container.command?.[0]).toBe("node");
    const [readiness, data] = container.args.map((url) => new URL(url).pathname);
    const asked = [byRole("poller").as.at("management", readiness ?? ""), ingest.at("http", data ?? "")];
    const asking = services.processes.node([...(container.command?.slice(1) ?? []), ...asked]);
    expect([await asking.exited, asking.lines]).toEqual([
      { code: 0, signal: null },
      expect.arrayContaining([
        expect.stringContaining('200 {"status":"healthy"'),
        expect.stringContaining("200 Service is running!"),
      ]),
    ]);
    await stopAll(started);
  });

  test("what README.md shows: from its values to a delivered message", async () => {
    const page = read("helm/svc/README.md");
    const block = (name: string) =>
      codeBlocks(page).find(({ text }) => text.startsWith(`# ${name}\n`))?.text ?? `no block ${name}`;
    const trial = loadAll(block("trial.yaml")) as Manifest[];
    const [nodeBinary, ...script] = named(trial, "Deployment", "receiver").spec.template.spec.containers[0].command;
    expect(nodeBinary).toBe("node");
    const port = await freePort();
    const ownPort = script.map((argument: string) => argument.replace("listen(8080)", `listen(${port})`));
    const receiver = services.processes.node(ownPort);

    const values = path.join(services.folder(), "values.yaml");
    writeFileSync(values, block("values.yaml"));
    const manifests = await renderWith(values, {
      "config.database.username": database.user,
      "config.destinations.receiver.baseUrl": `http://127.0.0.1:${port}`,
    });
    const started = await Promise.all(ofKind(manifests, "Deployment").map((pod) => start(pod, manifests)));
    await Promise.all(started.map(isReady));

    const [, route = "", body = ""] = /curl -i http:\/\/localhost:8080(\S+) .* -d '(.*)'/.exec(page) ?? [];
    const ingest = started.find(({ pod }) => pod.of.endsWith("-ingest"))?.as;
    const answer = await fetch(ingest?.at("http", route) ?? "", { method: "POST", body });
    expect(answer.status).toBe(202);
    const [, printed = ""] = /the last command prints\s+`([^`]+)`/.exec(page) ?? [];
    expect((await receiver.waitForLine(/POST .*/))[0]).toBe(printed);
    await stopAll(started);
  });

  test("a configuration that svc refuses, which ends the Jobs with the exit code that their failure policy names", async () => {
    const manifests = await renderWith("retention-cronjob", {
      "config.destinations.billing": { baseUrl: "http://billing.example.com" },
      // A variable that the chart does not look at.
      extraEnv: [{ name: "SVC_DATABASE_POOLSIZE", value: "none" }],
    });
    const jobs = [jobOf(manifests, "check"), jobOf(manifests, "migrate"), only(ofKind(manifests, "CronJob"))];
    for (const pod of jobs) {
      const { podFailurePolicy } = pod.owner.spec.jobTemplate?.spec ?? pod.owner.spec;
      const { code } = await runToEnd(pod, manifests);
      expect([pod.of, podFailurePolicy.rules[0].onExitCodes.values]).toEqual([pod.of, [code]]);
    }
  });

  test("a check that names each mistake of the configuration in a line", async () => {
    const manifests = await renderWith("minimal", {
      "config.outbox": { concurency: 4 },
      "config.sources.refunds": { path: "/refunds" },
    });
    const { code, output } = await runToEnd(jobOf(manifests, "check"), manifests);
    expect([code, output.split("\n")]).toEqual([
      2,
      [
        expect.stringMatching(/^configuration is not valid \(.*svc\.yml\): 2 problems$/),
        expect.stringMatching(/^error: sources\.refunds: .*idempotencyKeyPath/),
        expect.stringMatching(/^error: outbox\.concurency: .*concurrency/),
      ],
    ]);
  });

  test("every role in one process on one port, with retention on schedule", async () => {
    const manifests = await renderWith("all-in-one", { "config.database.username": database.user });
    const all = await start(only(ofKind(manifests, "Deployment")), manifests);
    expect(await isReady(all)).toEqual(["database", "outbox-poller", "outbox-capture", "inbox-relay"]);
    expect(await runToEnd(only(ofKind(manifests, "CronJob")), manifests)).toEqual({
      code: 0,
      output: expect.stringContaining("retention"),
    });
    await stopAll([all]);
  });
});
