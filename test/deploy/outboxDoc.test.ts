import { randomUUID } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { copyFile, mkdir, mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { beforeAll, describe, expect, jest, test } from "@jest/globals";
import { Insert_column_idContext } from "antlr4ts-sql/dist/src/grammar-output/tsql/TSqlParser.js";
import { load as parseYaml } from "js-yaml";
import pg from "pg";
import { OUTBOX_COLUMNS } from "../../src/model/rows.ts";
import { claimRequest } from "../conformance/store/harness.ts";
import { CLIENTS_FOLDER, goProgram, type ProgramEnd, runProgram } from "../support/clientPrograms.ts";
import { createDatabase, onServer, TEST_APPLICATION_NAME, type TestDatabase } from "../support/databases.ts";
import { describeWithTools, toolPath } from "../support/describeWithTools.ts";
import { eventually } from "../support/eventually.ts";
import { blocksOf } from "../support/markdown.ts";
import { DEFAULT_NAMES, postgresStore } from "../support/postgresHarness.ts";
import type { ReceivedRequest, Receiver } from "../support/receiver.ts";
import { ROOT } from "../support/repository.ts";
import { type ConfigTree, databaseConfig, merged, ordersTo, useServices } from "../support/service.ts";
import { nodesOf } from "../support/transactSql/grammar.ts";
import { parseBatch } from "../support/transactSql/strictness.ts";
import { load } from "../unit/config/support.ts";

/** docs/outbox.md: its examples, run as they stand there. */

const DOCS = fileURLToPath(new URL("../../docs/", import.meta.url));
const EXAMPLES = path.join(DOCS, "examples", "outbox");
const PAGE = readFileSync(path.join(DOCS, "outbox.md"), "utf8");
const FILES = readdirSync(EXAMPLES, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => path.relative(EXAMPLES, path.join(entry.parentPath, entry.name)).split(path.sep).join("/"))
  .toSorted();
const example = (file: string): string => readFileSync(path.join(EXAMPLES, file), "utf8");
const examplesOf = (folder: string): string[] => FILES.filter((file) => file.startsWith(`${folder}/`));

/** The statements in the code of a program, its parameters counted by `parameter`. */
function statementsOf(file: string, parameter: (n: number) => string): string[] {
  return [...example(file).matchAll(/"((?:INSERT INTO|UPDATE) [^"]+)"/g)].map(([, text = ""]) => {
    let count = 0;
    return text.replace(/\?|%s/g, () => {
      count += 1;
      return parameter(count);
    });
  });
}

/** The grammar's tables are built while it reads: the first statements take seconds. */
jest.setTimeout(120_000);

test("the pages link to every file of docs/examples/outbox, and what they quote is the file", () => {
  const pages = `${PAGE}${readFileSync(path.join(DOCS, "tables.md"), "utf8")}`;
  const quotes = [...pages.matchAll(/^\[([^\]]+)\]\(examples\/outbox\/([^)]+)\):\n\n```\w+\n(.*?)^```$/gms)];
  const links = [...pages.matchAll(/\]\(examples\/outbox\/([^)]+)\)/g)].map(([, file = ""]) => file);

  expect(links.toSorted()).toEqual(FILES);
  expect(quotes).toHaveLength(8);
  for (const [, name, file = "", text] of quotes) expect({ name, text }).toEqual({ name: file, text: example(file) });
});

describe("for PostgreSQL", () => {
  const services = useServices("block");
  const shop = `shop_${randomUUID().replaceAll("-", "")}`;
  let database: TestDatabase;
  let receiver: Receiver;
  let application: pg.Client;

  beforeAll(async () => {
    services.defer(() => onServer(`DROP ROLE IF EXISTS "${shop}"`));
    [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    // The poller looks once an hour: what is delivered sooner was announced.
    const config = ordersTo(receiver, { outbox: { pollIntervalMs: 3_600_000 } });
    const direct = { ...database, jdbcUrl: database.directJdbcUrl };
    await services.start({ database: direct, roles: ["poller"], config });
    await database.query(example("postgresql/orders.sql"));
    await database.query(`CREATE ROLE "${shop}" LOGIN PASSWORD 'secret'`);
    await database.query(`GRANT SELECT, UPDATE ON orders TO "${shop}"`);
    await database.query(example("postgresql/grants.sql").replaceAll("TO shop", `TO "${shop}"`));
    application = await connected();
  });

  /** A connection with the rights that the page gives to an application. */
  async function connected(): Promise<pg.Client> {
    const client = new pg.Client({ connectionString: shopUrl(), application_name: TEST_APPLICATION_NAME });
    await client.connect();
    services.defer(() => client.end());
    return client;
  }

  function shopUrl(): string {
    const url = new URL(database.url);
    url.username = shop;
    url.password = "secret";
    return url.href;
  }

  /** Wakes the poller as the page says, until `count` more deliveries than `before` are there. */
  async function delivered(before: number, count: number): Promise<readonly ReceivedRequest[]> {
    await eventually(async () => {
      await application.query(example("postgresql/wake.sql"));
      return receiver.requests.length >= before + count;
    });
    return receiver.requests.slice(before);
  }

  test("the SQL changes the order and sends the message, with the rights of the page", async () => {
    const before = receiver.requests.length;
    await application.query(example("postgresql/pay.sql"));

    const [message, ...others] = await delivered(before, 1);
    expect(others).toEqual([]);
    expect(JSON.parse(message?.body.toString() ?? "")).toEqual({ id: "o-1", status: "paid" });
    const [row] = await database.query("SELECT id, topic, key FROM outbox");
    expect(row).toEqual({ id: expect.any(String), topic: "orders.paid", key: "o-1" });
    expect(message?.headers).toMatchObject({
      "x-tenant": "acme",
      "x-message-id": row?.id,
      "content-type": "application/json",
    });
    expect(await database.query("SELECT status FROM orders WHERE id = 'o-1'")).toEqual([{ status: "paid" }]);
  });

  /** Runs the example of a language, which changes an order and sends a message, for an order, and for an unknown order. */
  async function paysOrNot(orderId: string, pay: (orderId: string) => Promise<ProgramEnd>): Promise<void> {
    await database.query("INSERT INTO orders VALUES ($1, 'new')", [orderId]);
    const before = receiver.requests.length;
    const [paid, unknown] = [await pay(orderId), await pay("o-9")];

    expect(paid).toMatchObject({ code: 0, stdout: `${orderId} is paid\n` });
    expect(unknown.code).toBe(1);
    expect(unknown.stderr).toContain("no order o-9");
    const [message] = await delivered(before, 1);
    expect(JSON.parse(message?.body.toString() ?? "")).toEqual({ id: orderId, status: "paid" });
    expect(message?.headers["x-tenant"]).toBe("acme");
    expect(await database.query("SELECT key FROM outbox WHERE key IN ($1, 'o-9')", [orderId])).toEqual([
      { key: orderId },
    ]);
  }

  test("the program for Node.js does both or neither", async () => {
    const folder = await mkdtemp(path.join(tmpdir(), "svc-example-"));
    services.defer(() => rm(folder, { recursive: true }));
    const client = path.join(folder, "node_modules", "@svc-relay", "client");
    await mkdir(client, { recursive: true });
    await symlink(path.join(ROOT, "node_modules", "pg"), path.join(folder, "node_modules", "pg"));
    await copyFile(path.join(CLIENTS_FOLDER, "typescript", "package.json"), path.join(client, "package.json"));
    await copyFile(path.join(EXAMPLES, "postgresql", "pay.mjs"), path.join(folder, "pay.mjs"));
    const compiler = path.join(ROOT, "node_modules", ".bin", "tsc");
    const built = await runProgram([compiler, "-p", "typescript", "--outDir", path.join(client, "dist")], {});
    expect(built).toMatchObject({ code: 0, stdout: "" });

    await paysOrNot("o-3", (orderId) =>
      runProgram([process.execPath, path.join(folder, "pay.mjs"), orderId], { DATABASE_URL: shopUrl() }),
    );
  });

  describeWithTools(["client-python"], "Python", () => {
    test("the program does both or neither", async () => {
      const python = [toolPath("client-python"), path.join(EXAMPLES, "postgresql", "pay.py")];
      const env = { DATABASE_URL: shopUrl(), PYTHONPATH: path.join(CLIENTS_FOLDER, "python", "src") };
      await paysOrNot("o-4", (orderId) => runProgram([...python, orderId], env));
    });
  });

  describeWithTools(["client-go"], "Go", () => {
    test("the program does both or neither", async () => {
      const [go, env] = goProgram(toolPath("client-go"), path.join(EXAMPLES, "postgresql", "pay.go"));
      await paysOrNot("o-5", (orderId) => runProgram([...go, orderId], { ...env, DATABASE_URL: shopUrl() }));
    });
  });

  describeWithTools(["client-java"], "Java", () => {
    test("the program does both or neither", async () => {
      const folder = await mkdtemp(path.join(tmpdir(), "svc-example-"));
      services.defer(() => rm(folder, { recursive: true }));
      const filesIn = (parent: string, ext: string) =>
        readdirSync(parent, { recursive: true, encoding: "utf8" })
          .filter((file) => file.endsWith(ext))
          .map((file) => path.join(parent, file));
      const classPath = [folder, ...filesIn(toolPath("client-java"), ".jar")].join(path.delimiter);
      const sources = filesIn(path.join(CLIENTS_FOLDER, "java", "src", "main", "java"), ".java");
      const program = path.join(EXAMPLES, "postgresql", "Pay.java");
      const built = await runProgram(["javac", "-d", folder, "-cp", classPath, ...sources, program], {});
      expect(built).toMatchObject({ code: 0 });

      const url = new URL(shopUrl());
      const JDBC_URL = `jdbc:postgresql://${url.host}${url.pathname}?user=${url.username}&password=${url.password}`;
      await paysOrNot("o-6", (orderId) => runProgram(["java", "-cp", classPath, "Pay", orderId], { JDBC_URL }));
    });
  });

  test("the options send once, later, and in an order; what waits can be withdrawn", async () => {
    const before = receiver.requests.length;
    await application.query(example("postgresql/options.sql"));
    const [once = ""] = example("postgresql/options.sql").split(";");
    expect((await application.query(once)).rowCount).toBe(0);

    const messages = await delivered(before, 4);
    const bodies = messages.map(({ body }) => JSON.parse(body.toString()) as { line?: number });
    expect(bodies.map(({ line }) => line)).toEqual([undefined, 1, 2, 3]);
    expect(messages[0]?.headers["x-message-id"]).toBe(/'([0-9a-f-]{36})'/.exec(once)?.[1]);

    const waiting = await database.query(
      `SELECT state, max_attempts, scheduled_at - created_at = interval '15 minutes' AS later
       FROM outbox WHERE topic = 'orders.reminder'`,
    );
    expect(waiting).toEqual([{ state: "pending", max_attempts: 20, later: true }]);
    expect(await database.query(example("postgresql/withdraw.sql"))).toHaveLength(1);
    expect(await database.query(example("postgresql/withdraw.sql"))).toEqual([]);
  });

  test("a transaction that commits behind a later one is delivered behind it", async () => {
    const before = receiver.requests.length;
    const insert = "INSERT INTO outbox (topic, key, payload) VALUES ('orders.paid', 'o-1', $1)";
    const slow = await connected();
    await slow.query("BEGIN");
    await slow.query(insert, ['"drew the lower sequence"']);
    await application.query(insert, ['"committed first"']);
    await delivered(before, 1);
    await slow.query("COMMIT");

    const messages = await delivered(before, 2);
    expect(messages.map(({ body }) => body.toString())).toEqual(['"committed first"', '"drew the lower sequence"']);
  });

  test.each([
    ["UPDATE outbox SET state = 'sent'", "42501"],
    ["INSERT INTO outbox (topic, payload, state) VALUES ('t', '{}', 'sent')", "42501"],
    ["DELETE FROM outbox", "42501"],
    ["SELECT payload FROM outbox", "42501"],
  ])("the rights of the page do not allow %s", async (statement, code) => {
    await expect(application.query(statement)).rejects.toMatchObject({ code });
  });

  test("nobody sets the sequence by accident", async () => {
    const insert = database.query("INSERT INTO outbox (topic, payload, sequence) VALUES ('t', '{}', 1)");
    await expect(insert).rejects.toMatchObject({ code: "428C9" });
  });

  test("the statements of Pay.cs fit the tables", async () => {
    const statements = statementsOf("postgresql/Pay.cs", (n) => `$${n}`);
    expect(statements.map((text) => text.split(" ")[0])).toEqual(["UPDATE", "INSERT"]);
    for (const statement of statements) {
      await application.query(`PREPARE statement AS ${statement}`);
      await application.query("DEALLOCATE statement");
    }
  });

  test("the statements of the text run", async () => {
    const quoted = new Set(FILES.map(example));
    const ofTheText = blocksOf(PAGE, "sql").filter((text) => !quoted.has(text));
    const inline = [...PAGE.matchAll(/`(SELECT [^`.]+)`/g)].map(([, text = ""]) => text);

    expect([ofTheText.length, inline.length]).toEqual([1, 2]);
    for (const text of [...ofTheText, ...inline]) await expect(database.query(text)).resolves.toBeDefined();
  });

  test("a table of one's own, made and named as the page says, is delivered from", async () => {
    await using own = await createDatabase();
    const bundled = postgresStore(own);
    await bundled.schema.migrate().finally(() => bundled.close());
    await own.query(example("postgresql/own-table.sql"));
    const yaml = parseYaml(example("postgresql/own-table.yml")) as ConfigTree;
    const { config, warnings } = load(JSON.stringify(merged({ database: databaseConfig(own) }, yaml)));
    const { inboxTableName, outboxTableName, columnMapping } = config.database;
    const store = postgresStore(own, {
      ...DEFAULT_NAMES,
      inboxTable: inboxTableName,
      outboxTable: outboxTableName,
      ...columnMapping,
    });
    try {
      await store.schema.checkColumns();
      await own.query(`INSERT INTO events (type, entity_id, body) VALUES ('orders.paid', 'o-1', '{"id":"o-1"}')`);
      const { rows } = await store.outbox.claim(claimRequest());

      expect(warnings).toEqual([]);
      expect(rows).toMatchObject([{ topic: "orders.paid", key: "o-1", payload: '{"id": "o-1"}' }]);
    } finally {
      await store.close();
    }
  });
});

describe("for SQL Server", () => {
  const outboxColumns = new Set<string>(Object.values(OUTBOX_COLUMNS));
  // The grammar knows no GRANT on a table, and each further kind of statement costs it half a second.
  const batches = examplesOf("sqlserver")
    .filter((file) => !/\/(?:grants|orders)\.sql$/.test(file))
    .map((file): [string, string[]] => [
      file,
      file.endsWith(".sql") ? [example(file)] : statementsOf(file, (n) => `@p${n}`),
    ]);

  test.each(batches)("the T-SQL of %s is right by the grammar, and names columns of the outbox", (file, texts) => {
    expect(texts).toHaveLength(file.endsWith(".sql") ? 1 : 2);
    for (const text of texts) {
      const { tree } = parseBatch(text);
      const columns = nodesOf(tree, Insert_column_idContext).map(({ text: name }) => name.replace(/[[\]]/g, ""));
      expect(columns.filter((name) => !outboxColumns.has(name))).toEqual([]);
    }
  });
});
