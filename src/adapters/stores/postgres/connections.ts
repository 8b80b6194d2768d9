import { readFileSync } from "node:fs";
import type { ConnectionOptions } from "node:tls";
import pg from "pg";
import { StoreError } from "../../../model/errors.ts";
import type { Secret } from "../../../model/secret.ts";
import type { Log } from "../../../ports/runtime.ts";
import { atMost } from "../../../time/wait.ts";
import { Reserve } from "../sql/reserve.ts";
import { isEnded, isReadOnly, toStoreError } from "./errors.ts";
import { Session } from "./session.ts";
import { LONGEST_MS, socketOf } from "./statement.ts";

interface PostgresConnection {
  /** Tried in this order, from the last one to work. Of several hosts, standbys are skipped. */
  readonly endpoints: readonly Endpoint[];
  readonly database: string | undefined;
  readonly username: string;
  readonly password: Secret;
  /** True to refuse a single host too while it is a standby (`targetServerType=primary`). */
  readonly primaryOnly: boolean;
  readonly applicationName: string;
}

export interface PoolOptions extends PostgresConnection {
  readonly poolSize: number;
  readonly connectionTimeoutMs: number;
}

/** The connections of a process to one database. Its stores there share them. */
export class PostgresConnections {
  /** Of all stores: an idle process keeps one connection warm, not one for each. */
  readonly turns = new Turns();
  readonly session: Session;
  readonly #options: PoolOptions;
  readonly #log: Log;
  readonly #pool: pg.Pool;
  readonly #choice: EndpointChoice;
  readonly #reserves = new Set<Reserve>();
  #closed = false;
  #prepares = true;
  readonly #clients = new Map<pg.ClientBase, Endpoint>();
  readonly #connecting = new Set<pg.ClientBase>();
  #losses = 0;
  /** Connections to a server that takes no writes. */
  readonly #readOnly = new WeakSet<pg.ClientBase>();
  readonly #refusesStandbys: boolean;

  constructor(options: PoolOptions, log: Log) {
    this.#options = options;
    this.#log = log;
    this.session = new Session(this, log);
    const hosts = new Set(options.endpoints.map(({ host, port }) => `${host}:${port}`));
    this.#refusesStandbys = options.primaryOnly || hosts.size > 1;
    const choice = new EndpointChoice(options.endpoints);
    this.#choice = choice;
    const clients = this.#clients;
    const connecting = this.#connecting;
    const lost = () => this.countLoss();
    // The pool makes its clients itself; this is its only seam for choosing the endpoint at each new connection.
    class EndpointClient extends pg.Client {
      constructor() {
        const endpoint = choice.current;
        super(clientConfig(options, endpoint));
        // The pool listens to idle clients only. Without a listener, a connection that breaks between two statements
        // would end the process.
        this.on("error", lost);
        clients.set(this, endpoint);
        connecting.add(this);
        this.once("connect", () => connecting.delete(this));
        this.once("end", () => {
          clients.delete(this);
          connecting.delete(this);
        });
      }
    }
    this.#pool = new pg.Pool({
      max: options.poolSize,
      connectionTimeoutMillis: options.connectionTimeoutMs,
      idleTimeoutMillis: 60_000,
      Client: EndpointClient,
      ...(this.#refusesStandbys ? { verify: (client, done) => this.#verify(client).then(() => done(), done) } : {}),
    } as pg.PoolConfig);
    // An idle connection that breaks is replaced at its next use; without a listener it would end the process. Its host
    // goes first then: a former primary may take writes again.
    this.#pool.on("error", () => {});
  }

  /** Each lost or failed connection may hide another database, or an earlier state. */
  get losses(): number {
    return this.#losses;
  }

  /** False once a prepared statement was lost, or outlived a change of its table: a pooler may keep both so. */
  get prepares(): boolean {
    return this.#prepares;
  }

  /** @returns the budget of connections of a new store, until it {@link leave}s */
  join(): Reserve {
    const { poolSize, connectionTimeoutMs } = this.#options;
    const share = () => (this.#reserves.size > 1 ? Math.max(1, Math.floor(poolSize / 2)) : undefined);
    const reserve = new Reserve({ poolSize, longestWaitMs: connectionTimeoutMs, share });
    this.#reserves.add(reserve);
    return reserve;
  }

  /** The last store to leave closes the connections. */
  async leave(reserve: Reserve): Promise<void> {
    this.#reserves.delete(reserve);
    if (this.#reserves.size === 0) await this.#close();
  }

  /** Takes a connection, which the caller releases. @throws StoreError when there is none in time */
  async connect(name: string): Promise<pg.PoolClient> {
    let tries = this.#choice.count;
    for (let tried = 1; ; tried += 1) {
      if (this.#closed) throw new StoreError("unavailable", `${name}: the connection pool is closed`);
      const failed = this.#choice.attempt();
      try {
        return await this.#writable();
      } catch (error) {
        this.countLoss();
        // Once more at the same host: of several the next one may be a former primary that takes writes again.
        if (isEnded(error) && tries > 1 && tries === this.#choice.count) tries += 1;
        else failed(isReadOnly(error));
        if (tried >= tries) throw toStoreError(name, error);
      }
    }
  }

  /** A connection of its own outside the pool, whose queries may take any time. The caller ends it. */
  async dedicated(): Promise<pg.Client> {
    const failed = this.#choice.attempt();
    const client = new pg.Client({
      ...clientConfig(this.#options, this.#choice.current),
      connectionTimeoutMillis: this.#options.connectionTimeoutMs,
      query_timeout: 0,
    });
    client.on("error", () => this.countLoss());
    try {
      await client.connect();
      if (this.#refusesStandbys) await refuseStandby(client);
    } catch (error) {
      this.countLoss();
      if (!isEnded(error)) failed(isReadOnly(error));
      await client.end().catch(() => {});
      throw toStoreError("connect", error);
    }
    return client;
  }

  countLoss(): void {
    this.#losses += 1;
  }

  leaveReadOnly(client: pg.ClientBase): void {
    const endpoint = this.#clients.get(client);
    if (endpoint === undefined || this.#readOnly.has(client)) return;
    for (const [each, its] of this.#clients) if (its === endpoint) this.#readOnly.add(each);
    this.#choice.leave(endpoint, true);
  }

  stopPreparing({ message: reason }: StoreError): void {
    if (!this.#prepares) return;
    this.#prepares = false;
    this.#log.info(
      { reason },
      "a prepared statement is lost or outdated (a pooler, or a changed table): until a restart statements run unprepared, which costs the database more",
    );
  }

  usage(): { used: number; idle: number; waiting: number } {
    const { totalCount, idleCount, waitingCount } = this.#pool;
    const held = [...this.#reserves].reduce((sum, { waiting }) => sum + waiting, 0);
    return { used: totalCount - idleCount, idle: idleCount, waiting: waitingCount + held };
  }

  async #close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const ended = this.#pool.end();
    for (const client of this.#connecting) socketOf(client).destroy();
    // A server that hangs does not answer, and borrowed connections wait for their statements.
    await atMost(CLOSE_TIMEOUT_MS, ended);
    for (const client of this.#clients.keys()) socketOf(client).destroy();
    await ended;
  }

  async #verify(client: pg.ClientBase): Promise<void> {
    await refuseStandby(client);
    const endpoint = this.#clients.get(client);
    if (endpoint !== undefined) this.#choice.works(endpoint);
  }

  async #writable(): Promise<pg.PoolClient> {
    for (;;) {
      const client = await this.#pool.connect();
      if (!this.#readOnly.has(client)) return client;
      client.release(true);
    }
  }
}

const CLOSE_TIMEOUT_MS = 3000;
const ASK_TIMEOUT_MS = 3000;

function clientConfig(options: PostgresConnection, at: Endpoint): pg.ClientConfig {
  return {
    host: at.host,
    port: at.port,
    ...(options.database === undefined ? {} : { database: options.database }),
    user: options.username,
    password: options.password.reveal(),
    ssl: at.tls,
    application_name: options.applicationName,
    keepAlive: true,
    pipeline: true,
    query_timeout: LONGEST_MS,
    keepAliveInitialDelayMillis: 10_000,
  };
}

async function refuseStandby(client: pg.ClientBase): Promise<void> {
  const show = { text: "SHOW transaction_read_only", query_timeout: ASK_TIMEOUT_MS } as pg.QueryConfig;
  const { rows } = await client.query(show);
  if ((rows[0] as { transaction_read_only?: string } | undefined)?.transaction_read_only !== "on") return;
  const reason = "it is a standby, or default_transaction_read_only is on for this user or database";
  // With the state of a refused write.
  throw Object.assign(new Error(`this host takes no writes: ${reason}`), { code: "25006" });
}

interface Turn {
  readonly begun: Promise<void>;
  readonly ended: Promise<void>;
}

/**
 * Runs statements that wake up together one after another: an idle process then keeps one connection warm. Each further
 * one would plan all of them anew and hold memory of the server. A statement that hangs delays the others only briefly.
 */
export class Turns {
  readonly #longestMs: number;
  #last: Turn | undefined;

  /** @param longestMs of a turn; by default far longer than a statement takes that does not wait itself */
  constructor(longestMs = LONGEST_TURN_MS) {
    this.#longestMs = longestMs;
  }

  /** Waits for the turn. @returns to call once when the statement has ended */
  async take(): Promise<() => void> {
    const before = this.#last;
    let end = (): void => {};
    const turn = {
      begun: before === undefined ? Promise.resolve() : before.begun.then(() => this.#passes(before)),
      ended: new Promise<void>((resolve) => {
        end = resolve;
      }),
    };
    this.#last = turn;
    await turn.begun;
    return () => {
      if (this.#last === turn) this.#last = undefined;
      end();
    };
  }

  /** A plain timer: an idle process waits here dozens of times a second. */
  #passes({ ended }: Turn): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, this.#longestMs);
      void ended.then(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }
}

const LONGEST_TURN_MS = 20;

interface PostgresTarget {
  readonly hosts: readonly { readonly host: string; readonly port: number }[];
  readonly sslMode: "disable" | "allow" | "prefer" | "require" | "verify-ca" | "verify-full";
  /** Files in PEM format. */
  readonly sslRootCert: string | undefined;
  readonly sslCert: string | undefined;
  readonly sslKey: string | undefined;
}

export interface Endpoint {
  readonly host: string;
  readonly port: number;
  readonly tls: ConnectionOptions | false;
}

/**
 * In the order of the tries: `prefer` and `allow` try each host both with and without TLS (PostgreSQL documentation,
 * "SSL Mode Descriptions").
 *
 * @throws Error that names the certificate file that cannot be read
 */
export function endpointsOf(target: PostgresTarget): readonly Endpoint[] {
  const modes = tlsModes(target);
  return target.hosts.flatMap(({ host, port }) => modes.map((tls) => ({ host, port, tls })));
}

/**
 * New connections go to the endpoint that worked last, then on in order. A process leaves a server only when it refuses
 * connections or writes: if two servers take writes, its own is the right one.
 */
export class EndpointChoice {
  readonly #endpoints: readonly Endpoint[];
  #index = 0;
  #successes = 0;

  /** @param endpoints at least one */
  constructor(endpoints: readonly Endpoint[]) {
    this.#endpoints = endpoints;
  }

  get count(): number {
    return this.#endpoints.length;
  }

  get current(): Endpoint {
    const endpoint = this.#endpoints[this.#index];
    if (endpoint === undefined) throw new Error("a pool needs at least one endpoint");
    return endpoint;
  }

  /**
   * Begins an attempt at the current endpoint.
   *
   * @returns to call when it has failed, with whether at a standby: the next endpoint is due, unless another attempt has
   *   failed, or succeeded, in the meantime. A server that refused the first of several may have been promoted before it
   *   refused the last
   */
  attempt(): (isStandby: boolean) => void {
    const [endpoint, successes] = [this.current, this.#successes];
    return (isStandby) => {
      if (this.#successes === successes) this.leave(endpoint, isStandby);
    };
  }

  /** A new connection to this endpoint takes writes. */
  works(endpoint: Endpoint): void {
    this.#index = this.#endpoints.indexOf(endpoint);
    this.#successes += 1;
  }

  /** Goes to the next endpoint if this is the current one. @param isStandby passes its server by, with and without TLS */
  leave(endpoint: Endpoint, isStandby: boolean): void {
    if (this.current !== endpoint) return;
    const following = [...this.#endpoints.slice(this.#index + 1), ...this.#endpoints.slice(0, this.#index)];
    const { host, port } = endpoint;
    const next = following.find((each) => !isStandby || each.host !== host || each.port !== port) ?? endpoint;
    this.#index = this.#endpoints.indexOf(next);
  }
}

function tlsModes(target: PostgresTarget): readonly (ConnectionOptions | false)[] {
  const files = {
    ...(target.sslRootCert === undefined ? {} : { ca: pem("sslrootcert", target.sslRootCert) }),
    ...(target.sslCert === undefined ? {} : { cert: pem("sslcert", target.sslCert) }),
    ...(target.sslKey === undefined ? {} : { key: pem("sslkey", target.sslKey) }),
  };
  const unverified = { ...files, rejectUnauthorized: false };
  const anyName = { ...files, rejectUnauthorized: true, checkServerIdentity: () => undefined };
  switch (target.sslMode) {
    case "disable":
      return [false];
    case "allow":
      return [false, unverified];
    case "prefer":
      return [unverified, false];
    case "require":
      // A named authority must be checked.
      return [target.sslRootCert === undefined ? unverified : anyName];
    case "verify-ca":
      return [anyName];
    case "verify-full":
      return [{ ...files, rejectUnauthorized: true }];
  }
}

function pem(parameter: string, file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new Error(`database.url: cannot read ${parameter}=${file}`, { cause: error });
  }
}
