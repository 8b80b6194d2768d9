import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { eventually } from "../support/eventually.ts";
import { freePort } from "../support/ports.ts";
import { Api } from "./api.ts";
import { HOST_ADDRESS } from "./container.ts";

/** etcd, the API server with its admission, and the controllers: everything of a cluster but machines. */
export interface ControlPlane {
  readonly api: Api;
  /** Writes a file for kubectl and Helm. @param namespace that they work in */
  kubeconfig(namespace: string): string;
  stop(): Promise<void>;
}

const TOKEN = "token-of-the-tests";
const START_MS = 120_000;

/**
 * Starts a control plane on 127.0.0.1.
 *
 * @param kube the program of test/cluster/controlPlane
 * @param folder for data, certificates and logs
 * @throws Error with the end of its log when a part does not come up
 */
export async function startControlPlane(kube: string, folder: string): Promise<ControlPlane> {
  const at = (name: string) => path.join(folder, name);
  mkdirSync(folder, { recursive: true });
  const [clientPort, peerPort, apiPort] = [await freePort(), await freePort(), await freePort()];
  const parts: Part[] = [];
  const start = (name: string, program: string, args: readonly string[]) => {
    const part = startPart(name, program, args, at(`${name}.log`));
    parts.push(part);
    return part;
  };
  const stop = async () => {
    for (const part of parts.reverse()) await part.stop();
  };

  const etcdUrl = `http://127.0.0.1:${clientPort}`;
  const peerUrl = `http://127.0.0.1:${peerPort}`;
  start("etcd", "etcd", [
    `--data-dir=${at("etcd")}`,
    `--listen-client-urls=${etcdUrl}`,
    `--advertise-client-urls=${etcdUrl}`,
    `--listen-peer-urls=${peerUrl}`,
    `--initial-advertise-peer-urls=${peerUrl}`,
    `--initial-cluster=default=${peerUrl}`,
  ]);

  writeFileSync(at("tokens.csv"), `${TOKEN},operator,operator,system:masters\n`);
  await run("openssl", ["genrsa", "-out", at("accounts.key"), "2048"]);
  const certificates = at("certificates");
  const url = `https://127.0.0.1:${apiPort}`;
  const apiServer = start("apiserver", kube, [
    "apiserver",
    `--etcd-servers=${etcdUrl}`,
    "--bind-address=127.0.0.1",
    `--advertise-address=${HOST_ADDRESS}`,
    `--secure-port=${apiPort}`,
    `--cert-dir=${certificates}`,
    `--token-auth-file=${at("tokens.csv")}`,
    "--authorization-mode=RBAC",
    "--service-cluster-ip-range=10.96.0.0/16",
    "--service-account-issuer=https://kubernetes.default.svc",
    `--service-account-key-file=${at("accounts.key")}`,
    `--service-account-signing-key-file=${at("accounts.key")}`,
  ]);

  try {
    const certificate = path.join(certificates, "apiserver.crt");
    await untilPart(apiServer, "the API server makes its certificate", async () => readFileSync(certificate));
    const api = new Api({ url, token: TOKEN, certificate });
    await untilPart(apiServer, "the API server answers", async () => await api.get("/api/v1/namespaces/default"));
    const kubeconfig = (namespace: string) => {
      const file = at(`kubeconfig-${namespace}`);
      writeFileSync(file, kubeconfigOf(url, certificate, namespace));
      return file;
    };
    const controllers = start("controllers", kube, [
      "controllers",
      `--kubeconfig=${kubeconfig("default")}`,
      // Nodes have no heartbeat here: a node is well as long as the test says so.
      "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller,-cloud-node-lifecycle-controller,-node-ipam-controller,-node-route-controller",
      "--leader-elect=false",
      "--bind-address=127.0.0.1",
      `--secure-port=${await freePort()}`,
      `--cert-dir=${at("controllers")}`,
      `--service-account-private-key-file=${at("accounts.key")}`,
    ]);
    await untilPart(
      controllers,
      "the controllers work",
      async () => await api.get("/api/v1/namespaces/default/serviceaccounts/default"),
    );
    return {
      api,
      kubeconfig,
      async stop() {
        await api.close();
        await stop();
      },
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** @throws Error with the end of its log when the part has ended, or does not get there */
async function untilPart(part: Part, label: string, check: () => Promise<unknown>): Promise<void> {
  await eventually(async () => part.hasEnded() || (await check()), { timeoutMs: START_MS, label });
  if (part.hasEnded()) throw new Error(`${label}: it has ended. ${part.endOfLog()}`);
}

interface Part {
  hasEnded(): boolean;
  endOfLog(): string;
  stop(): Promise<void>;
}

function startPart(name: string, program: string, args: readonly string[], log: string): Part {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
  const output = createWriteStream(log);
  child.stdout?.pipe(output, { end: false });
  child.stderr?.pipe(output, { end: false });
  const ended = endOf(child);
  const hasEnded = () => child.exitCode !== null || child.signalCode !== null;
  return {
    hasEnded,
    endOfLog: () => `${name}: ${readFileSync(log, "utf8").slice(-2000)}`,
    async stop() {
      if (!hasEnded()) child.kill("SIGKILL");
      await ended;
      output.end();
    },
  };
}

async function run(program: string, args: readonly string[]): Promise<void> {
  const child = spawn(program, args, { stdio: "ignore" });
  await endOf(child);
  if (child.exitCode !== 0) throw new Error(`${program} ${args[0]} ended with ${child.exitCode}`);
}

async function endOf(child: ChildProcess): Promise<void> {
  await once(child, "exit");
}

function kubeconfigOf(server: string, certificate: string, namespace: string): string {
  return JSON.stringify({
    apiVersion: "v1",
    kind: "Config",
    "current-context": "test",
    clusters: [{ name: "test", cluster: { server, "certificate-authority": certificate } }],
    users: [{ name: "operator", user: { token: TOKEN } }],
    contexts: [{ name: "test", context: { cluster: "test", user: "operator", namespace } }],
  });
}
