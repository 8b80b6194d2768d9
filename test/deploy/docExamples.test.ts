import { randomUUID } from "node:crypto";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "@jest/globals";
import { loadAll, load as parseYaml } from "js-yaml";
import pg from "pg";
import type { ClaimToken, MessageId } from "../../src/model/rows.ts";
import type { Store } from "../../src/ports/store.ts";
import { inventory, type Manifest } from "../support/chart/manifests.ts";
import { CHART, helm, KUBERNETES } from "../support/chart/render.ts";
import { createDatabase, onServer, TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { describeWithTools } from "../support/describeWithTools.ts";
import { eventually } from "../support/eventually.ts";
import { blocksOf as blocksIn, codeSpans } from "../support/markdown.ts";
import { postgresStore } from "../support/postgresHarness.ts";
import { read } from "../support/repository.ts";
import { type ConfigTree, merged, useServices } from "../support/service.ts";
import { DATABASE, load } from "../unit/config/support.ts";

/** The examples of the user documentation, run as they stand there. */

const PAGES = ["getting-started", "concepts", "guarantees", "security", "troubleshooting"];
const pageOf = (name: string) => read(`docs/${name}.md`);
const blocksOf = (name: string, language: string) => blocksIn(pageOf(name), language);

/** The values that the chart's README.md installs. */
const valuesOfChart = () =>
  blocksIn(read("helm/svc/README.md"), "yaml").find((block) => block.startsWith("# values.yaml\n")) ?? "";

/** A configuration, as far as a test puts two together. */
type Parts = ConfigTree & { readonly routes?: readonly object[] };

const services = useServices("block");
const ENVIRONMENT = { DATABASE_PASSWORD: "change-me", RABBITMQ_PASSWORD: "change-me" };

/** Loads a configuration without the disk: every secret that a `file:` names is there. */
function loadExample(yaml: string) {
  const text = "database" in (parseYaml(yaml) as object) ? yaml : DATABASE + yaml;
  const readFile = (file: string) =>
    file === "svc.yml" ? text : file.startsWith("/etc/svc/secrets/") ? "s3cret\n" : missing(file);
  return load(text, { env: ENVIRONMENT, readFile });
}

function missing(file: string): never {
  throw Object.assign(new Error(`ENOENT: no such file or directory, open '${file}'`), { code: "ENOENT" });
}

describe("configurations", () => {
  const all = PAGES.flatMap((page) => blocksOf(page, "yaml").map((text) => ({ page, text })));
  const files = all.filter(({ text }) => text.startsWith("# svc.yml\n"));
  const values = valuesOfChart();

  test("say which file they are, but for the security context of a container", () => {
    const others = all.filter((block) => !files.includes(block));

    expect(others.map(({ text }) => Object.keys(parseYaml(text) as object))).toEqual([["securityContext"]]);
    expect(files.length).toBeGreaterThanOrEqual(4);
    expect(values).not.toBe("");
  });

  test.each(files)("of $page.md are without a fault or a warning", ({ text }) => {
    expect(loadExample(text).warnings).toEqual([]);
  });

  test("in the values of the chart are so too", () => {
    const { config } = parseYaml(values) as { readonly config: object };

    expect(loadExample(JSON.stringify(config)).warnings).toEqual([]);
  });

  test("do what the page says they do", async () => {
    const [first, added] = blocksOf("getting-started", "yaml").map((text) => parseYaml(text) as Parts);
    const file = path.join(services.folder(), "svc.yml");
    const routes = [...(added?.routes ?? []), ...(first?.routes ?? [])];
    writeFileSync(file, JSON.stringify({ ...merged(first ?? {}, added ?? {}), routes }));
    const explained = services.processes.svc(["explain", "topic", "orders.created", "--config", file], {
      env: ENVIRONMENT,
    });

    expect((await explained.exited).code).toBe(0);
    const [printed = ""] = /^topic {8}orders\.created\n(?:.+\n)+?(?=\.\.\.\n)/m.exec(pageOf("getting-started")) ?? [];
    expect(printed.split("\n").length).toBeGreaterThan(4);
    expect(explained.stdout.join("\n")).toContain(printed);
  });
});

describeWithTools(["helm"], "the values of the chart's README.md", () => {
  test("render to the Deployments and the Service that the page names", async () => {
    const text = valuesOfChart();
    const file = path.join(services.folder(), "values.yaml");
    writeFileSync(file, text);
    const rendered = await helm(["template", "relay", CHART, ...KUBERNETES, "--values", file]);

    const names = inventory(loadAll(rendered).filter((document) => document != null) as Manifest[]);
    expect(names).toEqual(
      expect.arrayContaining([
        "Deployment relay-svc-ingest",
        "Deployment relay-svc-relay",
        "Deployment relay-svc-poller",
        "Service relay-svc",
        "Job relay-svc-migrate",
      ]),
    );
  });
});

describe("SQL that looks", () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await createDatabase();
    const store = postgresStore(database);
    await store.schema.migrate().finally(() => store.close());
  });
  afterAll(() => database.drop());

  // Those of the other two pages change something: they are run below.
  const statements = ["concepts", "guarantees", "troubleshooting"].flatMap((page) => [
    ...blocksOf(page, "sql").flatMap((block) =>
      block
        .split(/;$/m)
        .map((text) => text.trim())
        .filter((text) => text !== ""),
    ),
    ...codeSpans(pageOf(page)).filter((text) => /^SELECT .*(\bFROM\b|\()/.test(text)),
  ]);

  test("is there", () => {
    expect(statements.length).toBeGreaterThan(4);
  });

  test.each(statements)("runs on the migrated schema: %s", async (statement) => {
    await expect(database.query(statement.replaceAll("'...'", `'${randomUUID()}'`))).resolves.toBeDefined();
  });
});

describe("the rights of security.md", () => {
  const suffix = randomUUID().replaceAll("-", "").slice(0, 12);
  const own = (text: string) => text.replaceAll(/\b(relay_\w+|shop)\b/g, `$1_${suffix}`);
  const [roles = "", serviceGrants = "", roleGrants = ""] = blocksOf("security", "sql").map(own);
  const names = [...new Set(`${roles}${serviceGrants}${roleGrants}`.match(/\b(?:relay_\w+|shop_\w+)\b/g))];
  const as = (role: string) => ({ user: own(role), password: "change-me" });
  let database: TestDatabase;

  /** Runs something with a store whose user is one of the page's. */
  async function withStore<T>(role: string, use: (store: Store) => Promise<T>): Promise<T> {
    const store = postgresStore({ ...database, ...as(role) });
    try {
      return await use(store);
    } finally {
      await store.close();
    }
  }

  /** Runs statements as one of the page's users. */
  async function query(role: string, sql: string): Promise<void> {
    const { host, port, name } = database;
    const client = new pg.Client({ host, port, database: name, ...as(role), application_name: TEST_APPLICATION_NAME });
    await client.connect();
    try {
      await client.query(sql);
    } finally {
      await client.end();
    }
  }

  beforeAll(async () => {
    // Dropped after the database, in which they hold rights.
    services.defer(() => onServer(`DROP ROLE IF EXISTS ${names.join(", ")}`));
    database = await services.database();
    await database.query(`${roles}; CREATE ROLE ${own("shop")} LOGIN PASSWORD 'change-me'`);
    await withStore("relay_migrator", (store) => store.schema.migrate());
    await query("relay_migrator", serviceGrants);
    await database.query(roleGrants);
  });

  test("let a process of each role do its work, and an application send", async () => {
    const receiver = await services.receiver();
    const [page = ""] = blocksOf("getting-started", "yaml");
    const { server: _server, database: _database, ...config } = parseYaml(page) as ConfigTree;
    const start = (role: string) =>
      services.start({
        database: { ...database, ...as(`relay_${role}`) },
        config: merged(config, { database: { migrate: false } }),
        roles: [role],
        env: { RECEIVER_URL: receiver.url },
      });
    const processes = await Promise.all([start("ingest"), start("relay"), start("poller")]);
    const [ingest] = processes;
    const [sent = ""] = /\{"id":"1".*\}/.exec(pageOf("getting-started")) ?? [];

    expect((await ingest.post(sent)).status).toBe(202);
    expect(await ingest.post(sent)).toMatchObject({ status: 200, text: '{"status":"duplicate"}' });
    const [first] = await receiver.received(1);
    expect(first?.body.toString()).toBe(sent);
    await query("shop", blocksOf("getting-started", "sql")[0] ?? "");
    const [, second] = await receiver.received(2);
    expect(JSON.parse(second?.body.toString() ?? "")).toEqual({ id: 17, status: "paid" });
    await eventually(async () => {
      expect(await database.query("SELECT state FROM outbox")).toEqual([{ state: "sent" }, { state: "sent" }]);
    });
    // The tests below have the rows to themselves.
    const ends = await Promise.all(processes.map((each) => each.stop()));
    expect(ends.map(({ code }) => code)).toEqual([0, 0, 0]);
  });

  test.each(["relay_admin", "relay_service"])("let %s replay", async (role) => {
    const [row] = await database.query<{ id: MessageId }>(
      "INSERT INTO outbox (topic, payload, state) VALUES ('t', '{}', 'dead') RETURNING id",
    );
    await withStore(role, async ({ replay }) => {
      const scope = await replay.begin();
      const { rows } = await replay.page(scope, { topics: ["t"] }, null, 10);
      expect(rows.map(({ id }) => id)).toContain(row?.id);
      expect(await replay.move(scope, [row?.id as MessageId], "alice")).toMatchObject({ changed: 1 });
    });
  });

  test.each(["relay_retention", "relay_service"])("let %s delete what is finished", async (role) => {
    await database.query(
      `INSERT INTO outbox (topic, payload, state, updated_at) VALUES ('t', '{}', 'sent', now() - interval '1 day');
       INSERT INTO inbox (source, idempotency_key, payload, state, created_at) VALUES ('s', '${role}', '{}', 'processed', now() - interval '1 day')`,
    );
    await withStore(role, async ({ retention }) => {
      for (const table of ["outbox", "inbox"] as const) {
        const [range] = await retention.plan({ table, kind: "AGE", maxAgeMs: 3_600_000 });
        expect(range && (await retention.deleteBatch(range, 10)).deleted).toBe(1);
      }
    });
  });

  test("let the user of the whole service claim and settle, relay and receive", async () => {
    await withStore("relay_service", async ({ inbox, outbox, schema }) => {
      await schema.checkColumns();
      const id = randomUUID() as MessageId;
      const row = {
        id,
        source: "s",
        idempotencyKey: id,
        aggregateId: null,
        eventType: null,
        payload: "{}",
        state: "pending",
        consumption: "push",
        correlationId: null,
        headers: {},
        lastError: null,
      } as const;
      expect(await inbox.insert([row])).toMatchObject([{ kind: "stored" }]);
      const dropped = { names: [], prefixes: [] };
      expect(
        await inbox.relay({ limit: 10, topics: { s: ["t"] }, maxAttempts: 5, droppedHeaders: dropped }),
      ).toMatchObject({ relayed: 1 });
      const lease = { leaseMs: 30_000, claimTimeoutMs: 60_000 };
      const token = randomUUID() as ClaimToken;
      const { rows } = await outbox.claim({ ...lease, limit: 10, maxBytes: 1e6, token, heldTokens: [] });
      expect(rows.map((claimed) => claimed.id)).toContain(id);
      expect(await outbox.renew([token], lease)).toContain(id);
      expect((await outbox.settle([{ id, claimToken: token, kind: "sent" }])).closed).toContain(id);
    });
  });

  test.each([
    ["relay_ingest", "SELECT FROM outbox"],
    ["relay_ingest", "UPDATE inbox SET payload = ''"],
    ["relay_poller", "SELECT FROM inbox"],
    ["relay_poller", "DELETE FROM outbox"],
    ["relay_service", "DROP TABLE outbox"],
    ["shop", "SELECT payload FROM outbox"],
  ])("keep %s from %s", async (role, sql) => {
    await expect(query(role, sql)).rejects.toMatchObject({ code: "42501" });
  });
});
