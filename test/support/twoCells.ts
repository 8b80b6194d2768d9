import pg from "pg";
import { CITUS_SCHEMA, citusUrl } from "./citus.ts";
import { TEST_APPLICATION_NAME, type TestDatabase } from "./databases.ts";
import type { RunningProcess } from "./processes.ts";
import type { Receiver } from "./receiver.ts";
import { type ConfigTree, merged, ordersTo, type Service, type Services } from "./service.ts";
import { startTcpProxy, type TcpProxy } from "./tcpProxy.ts";

/** A cell of a test's installation. */
export interface Cell {
  readonly name: string;
  /** The JDBC URL of its tables, through the proxy. */
  readonly url: string;
  /** Leads to its database, for the service alone. */
  readonly proxy: TcpProxy;
  /** Runs one statement in its schema, past the proxy. */
  query<Row extends pg.QueryResultRow = pg.QueryResultRow>(sql: string, params?: readonly unknown[]): Promise<Row[]>;
}

/** An installation of two cells: two databases, or on Citus two schemas of one; or of four schemas there. */
export class TwoCells {
  readonly a: Cell;
  readonly b: Cell;
  readonly cells: readonly Cell[];
  /** `database.cells`. */
  readonly list: readonly ConfigTree[];
  readonly #services: Services;
  readonly #receiver: Receiver;
  readonly #database: TestDatabase;

  private constructor(
    services: Services,
    receiver: Receiver,
    database: TestDatabase,
    cells: readonly Cell[],
    list: readonly ConfigTree[],
  ) {
    this.#services = services;
    this.#receiver = receiver;
    this.#database = database;
    this.cells = cells;
    [this.a, this.b] = cells as [Cell, Cell];
    this.list = list;
  }

  /** Each behind a proxy of its own. */
  static async open(services: Services, receiver: Receiver): Promise<TwoCells> {
    const first = await services.database();
    const isCitus = citusUrl() !== undefined;
    const second = isCitus ? first : await services.database();
    if (isCitus) await first.query("CREATE SCHEMA cell_b");
    const a = openCell(services, "a", first, await proxyTo(services, first), isCitus ? CITUS_SCHEMA : undefined);
    const b = openCell(services, "b", second, await proxyTo(services, second), isCitus ? "cell_b" : undefined);
    const list = [{ name: "a" }, { name: "b", url: b.url }];
    return new TwoCells(services, receiver, { ...first, jdbcUrl: a.url }, [a, b], list);
  }

  /** Four schemas of a database on Citus, as `cells: 4` has them, behind one proxy. The first start makes them. */
  static async openFour(services: Services, receiver: Receiver): Promise<TwoCells> {
    const database = await services.database();
    const proxy = await proxyTo(services, database);
    const [control, ...cells] = ["", "_0", "_1", "_2", "_3"].map((end) =>
      openCell(services, CITUS_SCHEMA + end, database, proxy, CITUS_SCHEMA + end),
    );
    const list = cells.map(({ name }) => ({ name, schema: name }));
    return new TwoCells(services, receiver, { ...database, jdbcUrl: String(control?.url) }, cells, list);
  }

  /** A service with these cells. @param overrides of its configuration */
  start(overrides: ConfigTree = {}, roles: readonly string[] = []): Promise<Service> {
    return this.#services.start({ database: this.#database, config: this.#config(overrides), roles });
  }

  /** The process of a service that may not start. */
  async launchService(overrides: ConfigTree, roles: readonly string[] = []): Promise<RunningProcess> {
    const config = this.#config(overrides);
    return (await this.#services.launch({ database: this.#database, config, roles })).process;
  }

  #config(overrides: ConfigTree): ConfigTree {
    return ordersTo(this.#receiver, merged({ database: { cells: this.list } }, overrides));
  }
}

async function proxyTo(services: Services, database: TestDatabase): Promise<TcpProxy> {
  const proxy = await startTcpProxy(database);
  services.defer(() => proxy.close());
  return proxy;
}

function openCell(
  services: Services,
  name: string,
  database: TestDatabase,
  proxy: TcpProxy,
  schema: string | undefined,
): Cell {
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
  return {
    name,
    url,
    proxy,
    async query<Row extends pg.QueryResultRow>(sql: string, params: readonly unknown[] = []) {
      return (await pool.query<Row>(sql, [...params])).rows;
    },
  };
}
