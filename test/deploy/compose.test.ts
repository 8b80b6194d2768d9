import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, test } from "@jest/globals";
import { load, YAML11_SCHEMA } from "js-yaml";
import { loadConfig } from "../../src/config/load.ts";
import {
  describeWith,
  START_TIMEOUT_MS,
  sharedKafka,
  sharedNats,
  sharedRabbitmq,
  unique,
} from "../support/brokers/index.ts";
import { freePort } from "../support/ports.ts";
import type { RunningProcess } from "../support/processes.ts";
import { ROOT, read } from "../support/repository.ts";
import { useServices } from "../support/service.ts";
import { parseDockerfile, texts } from "./dockerfile.ts";

/** deploy/compose.yml without a container engine: what it says fits together, and its flows run with the brokers of the tests. */

const DEPLOY = path.join(ROOT, "deploy");

interface ComposeService {
  readonly image: string;
  readonly build?: {
    readonly context: string;
    readonly dockerfile: string;
    readonly args: Readonly<Record<string, string>>;
  };
  readonly command?: readonly string[];
  readonly entrypoint?: readonly string[];
  readonly environment?: Readonly<Record<string, string | number>>;
  readonly secrets?: readonly string[];
  readonly volumes?: readonly string[];
  readonly ports?: readonly string[];
  readonly healthcheck?: { readonly test?: readonly string[]; readonly disable?: boolean };
  readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>;
  readonly stop_grace_period?: string;
}

interface Compose {
  readonly services: Readonly<Record<string, ComposeService>>;
  readonly secrets: Readonly<Record<string, { readonly file: string }>>;
  readonly volumes: Readonly<Record<string, unknown>>;
}

/** With the fallbacks of its variables, as without any in the environment. The schema knows merges (`<<`). */
const compose = load(read("deploy/compose.yml").replace(/\$\{\w+:-([^}]*)\}/g, "$1"), {
  schema: YAML11_SCHEMA,
}) as Compose;
const services = Object.entries(compose.services);
const version = (JSON.parse(read("package.json")) as { version: string }).version;

function service(name: string): ComposeService {
  const found = compose.services[name];
  if (found === undefined) throw new Error(`deploy/compose.yml has no service ${name}`);
  return found;
}

const environment = (name: string) =>
  Object.fromEntries(Object.entries(service(name).environment ?? {}).map(([key, value]) => [key, String(value)]));

/** deploy/compose/svc.yml with its secrets read from where they lie in the repository. */
const SAMPLE = read("deploy/compose/svc.yml").replaceAll("/run/secrets/", `${path.join(DEPLOY, "compose/secrets")}/`);

describe("deploy/compose.yml", () => {
  test.each(services)("%s has an image of a pinned version", (_, { image, build }) => {
    expect(image).toMatch(build === undefined ? /^[a-z/]+:v?\d+\.\d+(\.\d+)?(-[a-z]+)?$/ : `svc-relay:${version}`);
    if (build !== undefined) {
      expect(path.join(DEPLOY, build.context, build.dockerfile)).toBe(path.join(DEPLOY, "Dockerfile"));
      expect(build.args).toEqual({ VERSION: version });
    }
  });

  test.each(services)("%s mounts files and volumes that are there", (_, { volumes = [], secrets = [] }) => {
    for (const [source = "", target] of volumes.map((volume) => volume.split(":"))) {
      if (source.startsWith("./")) expect([source, existsSync(path.join(DEPLOY, source))]).toEqual([source, true]);
      else expect(Object.keys(compose.volumes)).toContain(source);
      expect(target).toMatch(/^\//);
    }
    for (const secret of secrets)
      expect(readFileSync(path.join(DEPLOY, compose.secrets[secret]?.file ?? ""), "utf8")).toMatch(/^\S+\n$/);
  });

  test.each(services)(
    "%s waits for what can become so, and is reached from this machine only",
    (_, { depends_on = {}, ports = [] }) => {
      for (const [name, { condition }] of Object.entries(depends_on)) {
        const { healthcheck, build } = service(name);
        // That of the image counts too.
        const hasCheck = healthcheck?.test !== undefined || (build !== undefined && healthcheck === undefined);
        expect([name, condition]).toEqual([name, hasCheck ? "service_healthy" : "service_completed_successfully"]);
      }
      for (const port of ports) expect(port).toMatch(/^127\.0\.0\.1:(\d+):\1$/);
    },
  );

  test("gives svc a configuration without a warning, with every address in the network of the file", () => {
    const { config, warnings } = loadConfig({
      env: environment("svc"),
      file: "svc.yml",
      readFile: (file) => (file === "svc.yml" ? SAMPLE : readFileSync(file, "utf8")),
      strict: true,
    });
    expect(warnings).toEqual([]);
    expect(service("svc").ports).toEqual([`127.0.0.1:${config.server.httpPort}:${config.server.httpPort}`]);
    expect(config.server.managementPort).toBeUndefined();
    const kinds = (entries: Readonly<Record<string, { readonly kind: string }>>) =>
      Object.values(entries)
        .map(({ kind }) => kind)
        .toSorted();
    expect(kinds(config.sources)).toEqual(["http", "kafka", "nats", "rabbitmq"]);
    expect(kinds(config.destinations)).toEqual(["http", "kafka", "nats", "rabbitmq"]);

    // People look at a trace at an address of this machine.
    const hosts = [
      ...SAMPLE.replace(/urlTemplate: .*/, "").matchAll(/(?:\/\/|@|bootstrapServers: )([a-z]+):(\d+)/g),
    ].map(([, host, port]) => `${host}:${port}`);
    expect([...new Set(hosts)].toSorted()).toEqual([
      "kafka:9092",
      "nats:4222",
      "postgres:5432",
      "rabbitmq:5672",
      "receiver:8081",
    ]);
    for (const host of hosts) expect(Object.keys(compose.services)).toContain(host.split(":")[0]);
    expect(environment("kafka").KAFKA_ADVERTISED_LISTENERS).toBe("PLAINTEXT://kafka:9092");
    expect(environment("postgres")).toMatchObject({
      POSTGRES_USER: config.database.username,
      POSTGRES_DB: config.database.target.database,
    });
    expect(read("deploy/compose/receiver.mjs")).toContain("?? 8081");

    const graceMs = Number(/^(\d+)s$/.exec(service("svc").stop_grace_period ?? "")?.[1]) * 1000;
    expect(graceMs).toBeGreaterThan(3 * 5000 + config.outbox.shutdownTimeoutMs);
  });

  test("lets Prometheus read svc and Grafana read Prometheus", () => {
    const { scrape_configs: jobs } = load(read("deploy/prometheus/prometheus.yml")) as {
      readonly scrape_configs: readonly {
        readonly static_configs: readonly { readonly targets: readonly string[] }[];
      }[];
    };
    const targets = jobs.flatMap((job) => job.static_configs).flatMap((config) => config.targets);
    expect(targets).toEqual(["svc:8080"]);
    const source = read("deploy/grafana/provisioning/datasources/prometheus.yml");
    const [, url] = /url: http:\/\/(\S+)/.exec(source) ?? [];
    expect(url).toBe("prometheus:9090");
    expect(service("prometheus").ports).toEqual(["127.0.0.1:9090:9090"]);
    const [, dashboards] = /path: (\S+)/.exec(read("deploy/grafana/provisioning/dashboards/svc.yml")) ?? [];
    expect(service("grafana").volumes).toContain(`./grafana/svc-dashboard.json:${dashboards}/svc-dashboard.json:ro`);
  });
});

describeWith(["rabbitmq", "kafka", "nats"], "the flows of deploy/compose.yml", () => {
  const tools = useServices();

  test(
    "take messages through every broker to the receiver",
    async () => {
      const [rabbitmq, kafka, nats] = await Promise.all([sharedRabbitmq(), sharedKafka(), sharedNats()]);
      // The brokers are shared with other tests: queue, topic, stream and path get a name of this run.
      const name = unique("orders");
      const renamed = (text: string) =>
        text.replaceAll(/\borders\b/g, name).replaceAll(/\bORDERS\b/g, name.toUpperCase());
      const folder = tools.folder();

      // As in the container: beside node_modules, which its imports are found in.
      symlinkSync(path.join(ROOT, "node_modules"), path.join(folder, "node_modules"));
      const objects = path.join(folder, "broker-objects.mjs");
      writeFileSync(objects, renamed(read("deploy/compose/broker-objects.mjs")));
      const env = {
        ...environment("broker-objects"),
        RABBITMQ_URL: rabbitmq.url,
        KAFKA_SERVERS: kafka.bootstrapServers,
        NATS_URL: nats.url,
      };
      expect(Object.keys(env).toSorted()).toEqual(Object.keys(environment("broker-objects")).toSorted());
      // A second time it finds everything there.
      for (let times = 0; times < 2; times += 1) {
        const made = tools.processes.node([objects], { env });
        expect([await made.exited, made.stdout.length]).toEqual([{ code: 0, signal: null }, 3]);
      }

      const receiverPort = await freePort();
      const receiver = tools.processes.node([path.join(DEPLOY, "compose/receiver.mjs")], {
        env: { RECEIVER_PORT: String(receiverPort) },
      });
      await receiver.waitForLine(/listening/);

      mkdirSync(path.join(folder, "etc"));
      const file = path.join(folder, "etc/svc.yml");
      const here = renamed(SAMPLE)
        // biome-ignore lint/suspicious/noTemplateCurlyInString: it stands so in the file.
        .replaceAll("amqp://svc:${RABBITMQ_PASSWORD}@rabbitmq:5672/", rabbitmq.url)
        .replaceAll("kafka:9092", kafka.bootstrapServers)
        .replaceAll("nats://nats:4222", nats.url)
        .replaceAll("receiver:8081", `127.0.0.1:${receiverPort}`);
      writeFileSync(file, here);
      const database = await tools.database();
      const port = await freePort();
      const [, mounted] =
        service("svc")
          .volumes?.find((volume) => volume.startsWith("./compose/svc.yml:"))
          ?.split(":") ?? [];
      const command = (service("svc").command ?? []).map((word) => (word === mounted ? file : word));
      expect(command).toContain(file);
      const svcEnv = {
        ...environment("svc"),
        SVC_SERVER_HTTPPORT: String(port),
        SVC_DATABASE_URL: database.jdbcUrl,
        SVC_DATABASE_USERNAME: database.user,
        SVC_DATABASE_PASSWORD: database.password,
      };
      const svc = tools.processes.svc(command, { env: svcEnv });
      await svc.waitForLine(/"msg":"ready"/, 20_000);

      const post = async (type: string) => {
        const body = JSON.stringify({ id: type, type, customer: "c-1" });
        const { status } = await fetch(`http://127.0.0.1:${port}/inbox/${name}`, { method: "POST", body });
        expect(status).toBe(202);
      };
      for (const type of ["tour", "to-rabbitmq", "to-kafka", "to-nats", "direct"]) await post(type);

      const arrived = await Promise.all([
        delivery(receiver, "from-nats", "tour"),
        delivery(receiver, "from-rabbitmq", "to-rabbitmq"),
        delivery(receiver, "from-kafka", "to-kafka"),
        delivery(receiver, "from-nats", "to-nats"),
        delivery(receiver, name, "direct"),
      ]);
      expect(arrived.map(({ via }) => via)).toEqual([
        ["rabbitmq", "kafka", "nats"],
        ["rabbitmq"],
        ["kafka"],
        ["nats"],
        undefined,
      ]);

      const [check = ""] = texts(
        parseDockerfile(read("deploy/Dockerfile")).at(-1) ?? { name: "", image: "", instructions: [] },
        "HEALTHCHECK",
      );
      const [, ...script] = JSON.parse(check.replace(/^CMD /, "")) as readonly string[];
      const health = async (checkEnv: Readonly<Record<string, string>>) =>
        (await tools.processes.node(script, { env: checkEnv }).exited).code;
      expect(await health(svcEnv)).toBe(0);
      expect(await health({ ...svcEnv, SVC_SERVER_MANAGEMENTPORT: String(await freePort()) })).toBe(1);

      svc.kill("SIGTERM");
      expect(await svc.exited).toEqual({ code: 0, signal: null });
      receiver.kill("SIGTERM");
      expect(await receiver.exited).toEqual({ code: 0, signal: null });
    },
    3 * START_TIMEOUT_MS,
  );
});

/** The body that the receiver printed of a message, by the source it came from last. */
async function delivery(
  receiver: RunningProcess,
  source: string,
  type: string,
): Promise<{ readonly via?: readonly string[] }> {
  const [, body = ""] = await receiver.waitForLine(
    new RegExp(`^delivered /deliveries from ${source} .*? (\\{.*"type":"${type}".*\\})$`),
    30_000,
  );
  return JSON.parse(body) as { readonly via?: readonly string[] };
}
