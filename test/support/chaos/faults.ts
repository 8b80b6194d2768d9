import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import type { TcpProxy } from "../tcpProxy.ts";
import { within } from "../within.ts";
import type { Fleet } from "./fleet.ts";
import { unmigrate } from "./migrations.ts";
import type { MomentaryFault, PlannedFault } from "./plan.ts";
import type { Replica } from "./replica.ts";
import { beginLocked, doToTable, LOCK_NOT_AVAILABLE, rowLocks, type TableFault, tableLock } from "./tableFaults.ts";
import type { Timeline } from "./timeline.ts";

/** Requests 5 s, deliveries 10 s, the pool 3 s, and the grace of each phase. */
const STOPS_WITHIN_MS = 30_000;
/** Long enough for all the others at the same place. */
const CARRIED_OUT_WITHIN_MS = 60_000;
const LOOK_MS = 100;
const CONNECTIONS_HELD_MS = 2000;
/** An outcome does not wait for a row as long as that. */
const ROWS_HELD_MS = 550;
const SECONDS = 1000;
/** What the server says to whom it ends; the driver's own errors have no SQLSTATE. */
const SESSION_ENDED = /^57P0/;

/** What more than one fault at a time would make senseless: another one is left out while one of these is under way. */
type Place = Replica | TcpProxy | "database" | "clock" | "tables" | "broker" | "operator" | "receiver";

/** Carries out drawn faults. Each resolves when the fault is lifted. */
export class Faults {
  readonly #fleet: Fleet;
  readonly #timeline: Timeline;
  readonly #occupied = new Set<Place>();
  /** How often each kind was carried out. */
  readonly counts = new Map<string, number>();
  /** Kinds that were left out for want of the means. */
  readonly impossible = new Set<string>();

  constructor(fleet: Fleet, timeline: Timeline) {
    this.#fleet = fleet;
    this.#timeline = timeline;
  }

  async inflict(fault: PlannedFault): Promise<void> {
    const place = this.#placeOf(fault);
    if (place === undefined) {
      this.impossible.add(fault.kind);
      this.#timeline.note(`(${fault.kind} left out: there is none)`);
      return;
    }
    const until = performance.now() + (fault.waits ? CARRIED_OUT_WITHIN_MS : 0);
    while (!(await this.#tryAt(place, fault))) {
      if (performance.now() >= until) return;
      await sleep(LOOK_MS);
    }
    this.counts.set(fault.kind, (this.counts.get(fault.kind) ?? 0) + 1);
  }

  /** @returns whether it was carried out: not while another one is under way or something else is in its way */
  async #tryAt(place: Place, fault: PlannedFault): Promise<boolean> {
    if (this.#occupied.has(place)) {
      if (!fault.waits) this.#timeline.note(`(${fault.kind} left out: another one is under way there)`);
      return false;
    }
    this.#occupied.add(place);
    try {
      return (await this.#carryOut(fault)) !== false;
    } finally {
      this.#occupied.delete(place);
    }
  }

  #placeOf({ kind, role, index }: PlannedFault): Place | undefined {
    if (kind === "broker") return this.#fleet.broker && "broker";
    if (kind === "pause") return "operator";
    if (kind === "outage") return "receiver";
    if (kind === "clock") return this.#fleet.database.clock && "clock";
    if (ON_DATABASE.has(kind)) return "database";
    if (ON_TABLES.has(kind)) return "tables";
    const replica = this.#fleet.replicas[role][index];
    return ON_WAY.has(kind) ? replica?.proxy : replica;
  }

  /** @returns false when it came to nothing */
  // biome-ignore lint/suspicious/noConfusingVoidType: most faults cannot come to nothing
  #carryOut(fault: PlannedFault): Promise<boolean | void> {
    const replica = this.#fleet.replicas[fault.role][fault.index] as Replica;
    switch (fault.kind) {
      case "kill":
        return this.#kill(replica, fault);
      case "terminate":
        return this.#terminate(replica);
      case "suspend":
        return this.#suspend(replica, fault);
      case "backends":
        return this.#backends(fault);
      case "postgres fast":
        return this.#postgres("fast", fault);
      case "postgres immediate":
        return this.#postgres("immediate", fault);
      case "connections":
        return this.#connections(fault);
      case "broker":
        return this.#broker(fault);
      case "pause":
        return this.#pause(fault);
      case "outage":
        return this.#outage(fault);
      case "migrate":
        return this.#migrate();
      case "restore":
        return this.#restore(fault);
      case "settings":
        return this.#settings(fault);
      case "clock":
        return this.#clock(fault);
      case "lock":
        return this.#table(tableLock(fault.share, fault.lengthMs / 10));
      case "rows":
        return this.#table(rowLocks(fault.share, ROWS_HELD_MS + fault.lengthMs / 10));
      case "cut":
      case "held":
      case "slowed":
        return this.#way(replica, fault.kind, fault);
    }
  }

  async #kill(replica: Replica, { pauseMs }: PlannedFault): Promise<void> {
    replica.busy = true;
    // Never lifted for this process: it settles nothing more.
    this.#timeline.begin(`SIGKILL of ${replica.name}, started again after ${pauseMs / SECONDS} s`, {
      process: replica.name,
    });
    replica.signal("SIGKILL");
    await replica.ended();
    await sleep(pauseMs);
    replica.launch();
    replica.busy = false;
  }

  /** A stop in good order lets what is in flight end, and settles it: it excuses nothing. */
  async #terminate(replica: Replica): Promise<void> {
    replica.busy = true;
    const { name } = replica;
    const lift = this.#timeline.begin(`SIGTERM of ${name}`, "nothing");
    replica.signal("SIGTERM");
    const { code, signal } = await within(STOPS_WITHIN_MS, `the end of ${name} after SIGTERM`, replica.ended());
    lift();
    this.#timeline.note(`${name} ended with ${signal ?? code}`);
    replica.launch();
    replica.busy = false;
  }

  async #suspend(replica: Replica, { lengthMs }: PlannedFault): Promise<void> {
    replica.busy = true;
    const { name } = replica;
    const lift = this.#timeline.begin(`SIGSTOP of ${name} for ${lengthMs / SECONDS} s`, { process: name }, true);
    replica.signal("SIGSTOP");
    await sleep(lengthMs);
    replica.signal("SIGCONT");
    lift();
    this.#timeline.note(`SIGCONT of ${name}`);
    replica.busy = false;
  }

  async #backends({ share }: PlannedFault): Promise<void> {
    const lift = this.#timeline.begin(
      `pg_terminate_backend of ${Math.round(share * 100)} % of the backends`,
      "database",
    );
    await this.#fleet.database.query(TERMINATE, [share]);
    lift();
  }

  async #postgres(mode: "fast" | "immediate", { pauseMs }: PlannedFault): Promise<void> {
    const { database } = this.#fleet;
    const lift = this.#timeline.begin(
      `PostgreSQL stopped (${mode}), started again after ${pauseMs / SECONDS} s`,
      "database",
    );
    await database.stop(mode);
    await sleep(pauseMs);
    await database.startAgain();
    lift();
    this.#timeline.note("PostgreSQL is back");
  }

  /** The indexes of the last migrations are gone, as before an upgrade, and come back beside the traffic. It excuses nothing. */
  async #migrate(): Promise<boolean> {
    const lift = this.#timeline.begin("svc migrate makes the last migrations again", "nothing");
    const isTakenBack = await this.#unmigrate();
    if (isTakenBack) {
      await this.#fleet.migrate();
      this.#timeline.note("svc migrate has ended");
    }
    lift();
    return isTakenBack;
  }

  /** @returns whether it is done: not while somebody holds the tables all the time, nor if another fault ends the session */
  async #unmigrate(): Promise<boolean> {
    const client = await this.#fleet.database.connect();
    try {
      await beginLocked(client, unmigrate());
      await client.query("COMMIT");
      return true;
    } catch (error) {
      const { code, message } = error as Error & { readonly code?: string };
      if (code !== undefined && code !== LOCK_NOT_AVAILABLE && !SESSION_ENDED.test(code)) throw error;
      this.#timeline.note(`(nothing is taken back: ${message})`);
      return false;
    } finally {
      await client.end();
    }
  }

  async #restore({ lengthMs }: PlannedFault): Promise<void> {
    const { database } = this.#fleet;
    const from = Date.now();
    const lift = this.#timeline.begin(
      `PostgreSQL stopped for a copy, put back to it after ${lengthMs / SECONDS} s`,
      "database",
    );
    const copy = await database.copy();
    this.#timeline.note("PostgreSQL is back, and copied");
    await sleep(lengthMs);
    const lost = await database.restore(copy);
    const until = Date.now();
    this.#timeline.restores.push({ from, until, copiedAt: copy.at, lost });
    lift();
    this.#timeline.note("PostgreSQL is put back to the copy");
  }

  /** Sessions have the settings with which they began: so there are some of both kinds, in a process and for longer than the fault lasts. */
  async #settings({ lengthMs, share }: PlannedFault): Promise<void> {
    const { database } = this.#fleet;
    const { name } = database.account;
    const lift = this.#timeline.begin(
      `settings of the database's sessions changed for ${lengthMs / SECONDS} s`,
      "database",
    );
    const change = async (how: (setting: string, value: string) => string) => {
      for (const [setting, value] of Object.entries(ODD_SETTINGS)) {
        await database.query(`ALTER DATABASE "${name}" ${how(setting, value)}`);
      }
      await database.query(TERMINATE, [share]);
    };
    await change((setting, value) => `SET ${setting} = '${value}'`);
    await sleep(lengthMs);
    await change((setting) => `RESET ${setting}`);
    lift();
    this.#timeline.note("settings of the database's sessions changed back");
  }

  async #clock({ lengthMs, share }: PlannedFault): Promise<void> {
    const { database } = this.#fleet;
    const seconds = clockStep(share);
    const what = `clock of PostgreSQL ${Math.abs(seconds)} s ${seconds > 0 ? "ahead" : "behind"} for ${lengthMs / SECONDS} s`;
    const lift = this.#timeline.begin(what, "database");
    const step = (offset: number, isBack: boolean) => {
      const from = Date.now();
      database.clock?.step(offset);
      this.#timeline.clockSteps.push({ from, until: Date.now(), isBack });
    };
    step(seconds, seconds < 0);
    await sleep(lengthMs);
    step(0, seconds > 0);
    lift();
    this.#timeline.note("clock of PostgreSQL right again");
  }

  async #connections({ share }: PlannedFault): Promise<void> {
    const { database } = this.#fleet;
    const lift = this.#timeline.begin("all connections of PostgreSQL taken", "database");
    const clients: pg.Client[] = [];
    // Until the server refuses one.
    const takeAll = async () => {
      for (;;) clients.push(await database.connect());
    };
    await takeAll().catch(() => {});
    await clients[0]?.query(TERMINATE, [share]).catch(() => {});
    const until = performance.now() + CONNECTIONS_HELD_MS;
    while (performance.now() < until) {
      await takeAll().catch(() => {});
      await sleep(50);
    }
    await Promise.all(clients.map((client) => client.end().catch(() => {})));
    lift();
    this.#timeline.note(`${clients.length} connections of PostgreSQL given back`);
  }

  async #broker({ pauseMs }: PlannedFault): Promise<void> {
    const { broker } = this.#fleet;
    const lift = this.#timeline.begin(`broker stopped, started again after ${pauseMs / SECONDS} s`, "broker");
    await broker?.stop();
    await sleep(pauseMs);
    await broker?.start();
    lift();
    this.#timeline.note("the broker is back");
  }

  /** What is late for it comes in order. */
  async #pause({ lengthMs, share }: PlannedFault): Promise<boolean> {
    const { database } = this.#fleet;
    const name = share < 0.5 ? "http" : "stream";
    const lift = this.#timeline.begin(`${name} paused for ${lengthMs / SECONDS} s`, "nothing");
    const isPaused = await this.#unlessRefused(database.query(PAUSE, [name]));
    await sleep(lengthMs);
    await this.#resume(name);
    lift();
    return isPaused;
  }

  /** @returns whether it passed; the reason why not is noted: other faults end sessions, or leave no time */
  #unlessRefused(work: Promise<unknown>): Promise<boolean> {
    return work.then(
      () => true,
      (error: Error) => {
        this.#timeline.note(`(${error.message})`);
        return false;
      },
    );
  }

  /** Tries until the database takes it. */
  async #resume(name: string): Promise<void> {
    const until = performance.now() + STOPS_WITHIN_MS;
    for (;;) {
      try {
        await this.#fleet.database.query(RESUME, [name]);
        return;
      } catch (error) {
        if (performance.now() > until) throw error;
        await sleep(200);
      }
    }
  }

  async #outage({ lengthMs }: PlannedFault): Promise<void> {
    const { outage } = this.#fleet;
    const lift = this.#timeline.begin(`the HTTP receiver refuses everything for ${lengthMs / SECONDS} s`, "nothing");
    outage.isOn = true;
    await sleep(lengthMs);
    outage.isOn = false;
    lift();
  }

  /** What waits for a lock this short is late, and excuses nothing. */
  async #table(fault: TableFault): Promise<boolean> {
    const lift = this.#timeline.begin(fault.what, "nothing");
    // What ends the database's sessions ends this one as well, and with it the lock.
    const isDone = await this.#unlessRefused(doToTable(this.#fleet.database, fault));
    lift();
    return isDone;
  }

  async #way(replica: Replica, kind: "cut" | "held" | "slowed", { lengthMs, delayMs }: PlannedFault): Promise<void> {
    const how = kind === "slowed" ? `slowed by ${delayMs} ms a chunk` : kind;
    // A replica that is killed meanwhile has the same way to the database as its successor.
    const what = `way of ${replica.slot} to the database ${how} for ${lengthMs / SECONDS} s`;
    const lift = this.#timeline.begin(what, { way: replica.slot });
    if (kind === "slowed") replica.proxy.setDelay(delayMs);
    else replica.proxy.setMode(kind);
    await sleep(lengthMs);
    if (kind === "slowed") replica.proxy.setDelay(0);
    else replica.proxy.setMode("open");
    lift();
    this.#timeline.note(`way of ${replica.slot} to the database open`);
  }
}

const ON_DATABASE: ReadonlySet<MomentaryFault> = new Set([
  "backends",
  "postgres fast",
  "postgres immediate",
  "connections",
  "migrate",
  "restore",
  "settings",
]);
/** What an owner may have set for a database or a role, for applications that need it. */
const ODD_SETTINGS = {
  DateStyle: "SQL, DMY",
  IntervalStyle: "sql_standard",
  bytea_output: "escape",
  TimeZone: "Asia/Kathmandu",
};

/** Seconds. Half of the steps are below 6, the longest is 37: for so long a row may have to wait that was written by a clock ahead. */
function clockStep(drawn: number): number {
  const far = 2 * Math.abs(drawn - 0.55);
  return Math.sign(drawn - 0.55) * Math.round(1 + 49 * far ** 3) || 1;
}

const ON_TABLES: ReadonlySet<MomentaryFault> = new Set(["lock", "rows"]);
const ON_WAY: ReadonlySet<MomentaryFault> = new Set(["cut", "held", "slowed"]);

/** $1 share of the service's connections, drawn by the server. */
const TERMINATE = `
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name ~ '^(ingest|relay|poller)-' AND random() < $1`;

const PAUSE = `
INSERT INTO outbox_destination (name, paused_at, paused_by, pause_reason) VALUES ($1, now(), 'the suite', 'a fault')
ON CONFLICT (name) DO UPDATE SET paused_at = now(), paused_until = NULL`;
const RESUME = "UPDATE outbox_destination SET paused_at = NULL WHERE name = $1";
