import { readFileSync } from "node:fs";
import pg from "pg";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../../src/dev/embeddedPostgres.ts";
import { TEST_APPLICATION_NAME } from "./databases.ts";
import type { DatabaseAddress, Services } from "./service.ts";

/** A PostgreSQL server of a test's own, which may be stopped and started again at the same port with the same data. */
export class OwnPostgres {
  readonly #dataDirectory: string;
  #server: EmbeddedPostgres;

  private constructor(dataDirectory: string, server: EmbeddedPostgres) {
    this.#dataDirectory = dataDirectory;
    this.#server = server;
  }

  /** Starts one, which ends with the services. */
  static async start(services: Services): Promise<OwnPostgres> {
    const dataDirectory = services.folder();
    const own = new OwnPostgres(dataDirectory, await startEmbeddedPostgres({ dataDirectory }));
    services.defer(() => own.stop("immediate"));
    return own;
  }

  get host(): string {
    return this.#server.host;
  }

  get port(): number {
    return this.#server.port;
  }

  get password(): string {
    return this.#server.password.reveal();
  }

  /**
   * What a service needs to know of it.
   *
   * @param port default: its own; else the port of a proxy
   */
  address(port = this.port): DatabaseAddress {
    const { host, user, database } = this.#server;
    return { jdbcUrl: `jdbc:postgresql://${host}:${port}/${database}`, user, password: this.password };
  }

  /** Safe to call twice. */
  stop(mode: "fast" | "immediate" = "fast"): Promise<void> {
    return this.#server.stop(mode);
  }

  /** Stops every process of the server, so that connections hang. Safe to call twice. */
  suspend(): void {
    // Without the first one there are no new ones.
    process.kill(this.#server.pid, "SIGSTOP");
    for (const pid of childrenOf(this.#server.pid)) process.kill(pid, "SIGSTOP");
  }

  /** Ends {@link suspend}. */
  resume(): void {
    for (const pid of [...childrenOf(this.#server.pid), this.#server.pid]) process.kill(pid, "SIGCONT");
  }

  /** @param settings of the server, besides its defaults */
  async startAgain(settings: Readonly<Record<string, string>> = {}): Promise<void> {
    this.#server = await startEmbeddedPostgres({ dataDirectory: this.#dataDirectory, port: this.port, settings });
  }

  /** Runs one statement on a connection of its own and gives its rows. */
  query = async <Row extends pg.QueryResultRow>(sql: string, params: readonly unknown[] = []): Promise<Row[]> => {
    const client = new pg.Client({ connectionString: this.#server.url(), application_name: TEST_APPLICATION_NAME });
    await client.connect();
    try {
      return (await client.query<Row>(sql, [...params])).rows;
    } finally {
      await client.end();
    }
  };
}

function childrenOf(parent: number): readonly number[] {
  return readFileSync(`/proc/${parent}/task/${parent}/children`, "utf8").trim().split(" ").filter(Boolean).map(Number);
}
