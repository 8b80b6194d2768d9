import { execFile } from "node:child_process";
import { chownSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { expect } from "@jest/globals";
import pg from "pg";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../../src/dev/embeddedPostgres.ts";
import { TEST_APPLICATION_NAME } from "./databases.ts";
import { eventually } from "./eventually.ts";
import { freePort } from "./ports.ts";
import type { DatabaseAddress, Services } from "./service.ts";
import { startTcpProxy, type TcpProxy } from "./tcpProxy.ts";

/** Processes die here, and no machine. The log is kept for a standby that was cut off. */
const SETTINGS = { fsync: "off", shared_buffers: "32MB", wal_keep_size: "1GB", wal_retrieve_retry_interval: "100ms" };

/**
 * Two PostgreSQL servers of a test's own: a primary, and a standby that streams from it. Replication is asynchronous until
 * {@link PostgresPair.makeSynchronous}, and again after a promotion, as with a manager that prefers service to copies.
 */
export class PostgresPair {
  primary: PairServer;
  standby: PairServer;
  /** On the way of the log. */
  readonly #replication: TcpProxy;
  /** The address at which the standby finds its primary. */
  readonly #source: { host: string; port: number };
  /** In the order of the URL, which is the one of the beginning. */
  readonly #ports: readonly number[];

  private constructor(
    primary: PairServer,
    standby: PairServer,
    replication: TcpProxy,
    source: { host: string; port: number },
  ) {
    this.primary = primary;
    this.standby = standby;
    this.#replication = replication;
    this.#source = source;
    this.#ports = [primary.port, standby.port];
  }

  /** Starts both; they end with the services. */
  static async start(services: Services): Promise<PostgresPair> {
    const [primary, standby] = [new PairServer(services, await freePort()), new PairServer(services, await freePort())];
    await primary.start();
    const source = { host: "127.0.0.1", port: primary.port };
    const replication = await startTcpProxy(source);
    services.defer(() => replication.close());
    const pair = new PostgresPair(primary, standby, replication, source);
    await pair.renewStandby();
    return pair;
  }

  /** What a service needs to know of both: a URL whose first host is the first primary, whatever became of it. */
  address(): DatabaseAddress {
    const hosts = this.#ports.map((port) => `127.0.0.1:${port}`).join(",");
    const { user, password } = this.primary.running;
    const jdbcUrl = `jdbc:postgresql://${hosts}/postgres?targetServerType=primary`;
    return { jdbcUrl, user, password: password.reveal() };
  }

  /** Makes the standby anew from a copy of the running primary; returns when it streams. */
  async renewStandby(): Promise<void> {
    const { primary, standby } = this;
    await standby.stop("immediate");
    const backup = await primary.connect();
    try {
      await backup.query("SELECT pg_backup_start('standby', fast => true)");
      await standby.copyFrom(primary);
      const { rows } = await backup.query<{ labelfile: string }>("SELECT labelfile FROM pg_backup_stop(false)");
      standby.write("backup_label", rows[0]?.labelfile ?? "");
    } finally {
      await backup.end();
    }
    await this.followPrimary();
  }

  /** Starts the standby, whose data the primary's log continues, and returns when it streams. */
  async followPrimary(): Promise<void> {
    const { primary, standby } = this;
    this.#source.port = primary.port;
    this.#replication.setMode("open");
    standby.write("standby.signal", "");
    standby.write("postgresql.auto.conf", "");
    const { user, password } = primary.running;
    const way = `host=127.0.0.1 port=${this.#replication.port} user=${user} password=${password.reveal()}`;
    await standby.start({ primary_conninfo: way });
    await this.#replicates("async");
  }

  /** From now on a commit is answered only when the standby has it. */
  async makeSynchronous(): Promise<void> {
    await this.primary.query("ALTER SYSTEM SET synchronous_standby_names = '*'");
    await this.primary.query("SELECT pg_reload_conf()");
    await this.#replicates("sync");
    // What told the sender of the log told the checkpointer too, from which the sessions have it: it knows when it answers.
    await this.primary.query("CHECKPOINT");
  }

  /** The log no longer reaches the standby, and the primary does not know. */
  holdReplication(): void {
    this.#replication.setMode("held");
  }

  /** The log reaches the standby again. */
  resumeReplication(): void {
    this.#replication.setMode("open");
  }

  /** The log no longer reaches the standby; returns when the primary knows. */
  async cutReplication(): Promise<void> {
    this.#replication.setMode("cut");
    await eventually(async () => expect(await this.primary.query("SELECT FROM pg_stat_replication")).toEqual([]));
  }

  /** What the standby has got is visible there. @throws Error while the primary still sends */
  async standbyHasReplayed(): Promise<void> {
    const behind = "SELECT pg_last_wal_receive_lsn() - pg_last_wal_replay_lsn() AS bytes";
    await eventually(async () => expect(await this.standby.query(behind)).toEqual([{ bytes: "0" }]));
  }

  /** The standby becomes the primary, and the other one, which has been stopped, the standby to be. */
  async promote(): Promise<void> {
    await this.standby.query("SELECT pg_promote(true, 60)");
    [this.primary, this.standby] = [this.standby, this.primary];
  }

  async #replicates(mode: "async" | "sync"): Promise<void> {
    const senders = "SELECT state, sync_state FROM pg_stat_replication";
    await eventually(async () =>
      expect(await this.primary.query(senders)).toEqual([{ state: "streaming", sync_state: mode }]),
    );
  }
}

/** One of the two servers; it keeps its port. */
export class PairServer {
  readonly port: number;
  readonly #home: string;
  #running: EmbeddedPostgres | undefined;

  constructor(services: Services, port: number) {
    this.port = port;
    this.#home = services.folder();
    services.defer(() => this.stop("immediate"));
  }

  get running(): EmbeddedPostgres {
    if (this.#running === undefined) throw new Error("this server does not run");
    return this.#running;
  }

  async start(settings: Readonly<Record<string, string>> = {}): Promise<void> {
    const all = { ...SETTINGS, ...settings };
    this.#running = await startEmbeddedPostgres({ dataDirectory: this.#home, port: this.port, settings: all });
  }

  /** SIGKILL, as by the loss of its machine; returns when it is gone. */
  async kill(): Promise<void> {
    process.kill(this.running.pid, "SIGKILL");
    await this.stop("immediate");
  }

  /** Safe to call twice. */
  async stop(mode: "fast" | "immediate"): Promise<void> {
    await this.#running?.stop(mode);
    this.#running = undefined;
  }

  /** Replaces the data with a copy of a running server's in backup mode; without its log, which is streamed. */
  async copyFrom(other: PairServer): Promise<void> {
    const [from, to] = [path.join(other.#home, "data"), path.join(this.#home, "data")];
    // What a killed server had started ends a moment after it.
    rmSync(to, { recursive: true, force: true, maxRetries: 50, retryDelay: 20 });
    // With the owners of the files; some of them vanish while it runs.
    await promisify(execFile)("cp", ["-a", from, to]).catch(() => {});
    for (const name of ["postmaster.pid", "postmaster.opts", "standby.signal"]) {
      rmSync(path.join(to, name), { force: true });
    }
  }

  /** Writes a file of the data directory, which belongs to whom the directory belongs to. */
  write(name: string, content: string): void {
    const data = path.join(this.#home, "data");
    writeFileSync(path.join(data, name), content);
    const { uid, gid } = statSync(data);
    chownSync(path.join(data, name), uid, gid);
  }

  /** A connection of the test's own. The caller ends it. */
  async connect(): Promise<pg.Client> {
    const client = new pg.Client({
      connectionString: this.running.url(),
      application_name: TEST_APPLICATION_NAME,
    });
    client.on("error", () => {}); // The server may be stopped meanwhile; the query rejects as well.
    await client.connect();
    return client;
  }

  /** Runs one statement. */
  query = async <Row extends pg.QueryResultRow>(sql: string, params: readonly unknown[] = []): Promise<Row[]> => {
    const client = await this.connect();
    try {
      return (await client.query<Row>(sql, [...params])).rows;
    } finally {
      await client.end();
    }
  };
}
