import pg from "pg";
import { CITUS_SCHEMA, citusUrl } from "./citus.ts";
import { makeSchema, TEST_APPLICATION_NAME, type TestDatabase } from "./databases.ts";
import type { RunningProcess } from "./processes.ts";
import type { Receiver } from "./receiver.ts";
import { type ConfigTree, databaseConfig, merged, ordersTo, type Service, type Services } from "./service.ts";
import { startTcpProxy, type TcpProxy } from "./tcpProxy.ts";

/** A cell of a test's installation. */
export interface Cell {
  readonly name: "a" | "b";
  /** Leads to its database, for the service alone. */
  readonly proxy: TcpProxy;
  /** Runs one statement in its schema, past the proxy. */
  query<Row extends pg.QueryResultRow = pg.QueryResultRow>(sql: string, params?: readonly unknown[]): Promise<Row[]>;
}

/** An installation of two cells: two databases, or on Citus two schemas of one. */
export class TwoCells {
  readonly a: Cell;
  readonly b: Cell;
  /** The configuration of a service, without what `ordersTo` has. */
  readonly config: ConfigTree;
  readonly #services: Services;
  readonly #receiver: Receiver;
  readonly #database: TestDatabase;

  private constructor(services: Services, receiver: Receiver, database: TestDatabase, a: Cell, b: Cell, url: string) {
    this.#services = services;
    this.#receiver = receiver;
    this.#database = database;
    this.a = a;
    this.b = b;
    this.config = { database: { cells: [{ name: "a" }, { name: "b", url }] } };
  }

  static async open(services: Services, receiver: Receiver): Promise<TwoCells> {
    const first = await services.database();
    const isCitus = citusUrl() !== undefined;
    const second = isCitus ? first : await services.database();
    if (isCitus) await makeSchema(first, CITUS_SCHEMA_B);
    const a = await openCell(services, "a", first, isCitus ? CITUS_SCHEMA : undefined);
    const b = await openCell(services, "b", second, isCitus ? CITUS_SCHEMA_B : undefined);
    const database = { ...first, jdbcUrl: a.url };
    return new TwoCells(services, receiver, database, a, b, b.url);
  }

  get cells(): readonly [Cell, Cell] {
    return [this.a, this.b];
  }

  /** A service with these cells. @param overrides of its configuration */
  start(overrides: ConfigTree = {}, roles: readonly string[] = []): Promise<Service> {
    const config = ordersTo(this.#receiver, merged(this.config, overrides));
    return this.#services.start({ database: this.#database, config, roles });
  }

  /** The process of a service that may not start. */
  async launchService(overrides: ConfigTree, roles: readonly string[] = []): Promise<RunningProcess> {
    const config = ordersTo(this.#receiver, merged(this.config, overrides));
    return (await this.#services.launch({ database: this.#database, config, roles })).process;
  }

  /** The same without cells, in the database of the first one. */
  startWithout(): Promise<Service> {
    return this.#services.start({ database: this.#database, config: ordersTo(this.#receiver) });
  }

  /** Starts `svc cells` with these arguments. */
  launch(...args: readonly string[]) {
    const own = { database: databaseConfig(this.#database) };
    const file = this.#services.configFile(merged(ordersTo(this.#receiver, this.config), own));
    return this.#services.processes.svc(["cells", ...args, "--config", file]);
  }

  /** Runs `svc cells`. @returns what it printed. @throws Error when it fails */
  async command(...args: readonly string[]): Promise<string> {
    const command = this.launch(...args);
    const { code } = await command.exited;
    if (code !== 0) throw new Error(`svc cells ${args.join(" ")} ended with ${code}:\n${command.lines.join("\n")}`);
    return command.stdout.join("\n");
  }
}

/** The buckets that are open in a cell. */
export async function openBuckets({ query }: Cell): Promise<ReadonlySet<number>> {
  const rows = await query<{ bucket: number }>("SELECT bucket FROM outbox_bucket WHERE state = 'open'");
  return new Set(rows.map(({ bucket }) => bucket));
}

const CITUS_SCHEMA_B = "second_cell";

async function openCell(services: Services, name: Cell["name"], database: TestDatabase, schema: string | undefined) {
  const proxy = await startTcpProxy(database);
  services.defer(() => proxy.close());
  const pool = new pg.Pool({
    connectionString: database.url,
    application_name: TEST_APPLICATION_NAME,
    max: 2,
    ...(schema === undefined ? {} : { options: `-c search_path=${schema}` }),
  });
  pool.on("error", () => {});
  services.defer(() => pool.end());
  const direct = new URL(database.url);
  const url = `jdbc:postgresql://127.0.0.1:${proxy.port}${direct.pathname}${schema === undefined ? "" : `?currentSchema=${schema}`}`;
  const cell: Cell = {
    name,
    proxy,
    async query<Row extends pg.QueryResultRow>(sql: string, params: readonly unknown[] = []) {
      return (await pool.query<Row>(sql, [...params])).rows;
    },
  };
  return { ...cell, url };
}
