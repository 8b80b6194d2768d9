import { afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import { type SqlServerCdcOptions, sqlServerCdc } from "../../../../src/adapters/capture/sqlserver-cdc/index.ts";
import type { LogEvents, LogPosition } from "../../../../src/ports/capture.ts";
import { ManualClock, recordingLog } from "../../../support/recorders.ts";
import { within } from "../../../support/within.ts";
import { type CapturedChange, ENDPOINT, lsn, ManualPauses, PASSWORD, ScriptedCdc, serverError } from "./scriptedCdc.ts";

const NOW = Date.UTC(2024, 5, 1);

let server: ScriptedCdc;
let pauses: ManualPauses;
let controller: AbortController;
let told: string[];
let recorded: ReturnType<typeof recordingLog>;
let started: Promise<void>[];

beforeEach(() => {
  server = new ScriptedCdc();
  pauses = new ManualPauses();
  controller = new AbortController();
  told = [];
  recorded = recordingLog();
  started = [];
});

afterEach(async () => {
  controller.abort();
  await within(15_000, "the end of every follower", Promise.allSettled(started));
  expect(server.closed).toBe(server.opened);
  expect(JSON.stringify(recorded.lines)).not.toContain(PASSWORD);
});

const events: LogEvents = {
  following: () => told.push("following"),
  inserted: (at) => told.push(`inserted ${at - NOW}`),
  reached: (position) => told.push(`reached ${Number(position)}`),
};

function changeLog(changed: Partial<SqlServerCdcOptions> = {}) {
  return sqlServerCdc(
    {
      ...ENDPOINT,
      host: "db.example.com",
      connectionTimeoutMs: 15_000,
      table: { schema: "dbo", name: "outbox", idColumn: "id" },
      clock: new ManualClock(NOW),
      log: recorded.log,
      wait: pauses.wait,
      ...changed,
    },
    server.open,
  );
}

function follow(from: LogPosition | null = null, log = changeLog()): Promise<void> {
  const following = log.follow(from, events, controller.signal);
  following.catch(() => {});
  started.push(following);
  return following;
}

/** Follows until the first pause. */
async function followed(
  from: LogPosition | null = null,
  log = changeLog(),
): Promise<{ readonly following: Promise<void> }> {
  const begun = pauses.begun();
  const following = follow(from, log);
  await within(15_000, "the first look", Promise.race([begun, following]));
  return { following };
}

/** The log reaches an LSN by these changes, inserts unless they say otherwise, and is looked at. */
function captured(end: number, ...changes: readonly Partial<CapturedChange>[]): Promise<void> {
  server.highest = lsn(end);
  server.changes = changes.map((change) => ({ lsn: lsn(end), operation: 2, ...change }));
  return pauses.next();
}

async function faultOf(following = follow()): Promise<string> {
  const error = await within(
    1000,
    "the fault",
    following.then(
      () => new Error("no fault"),
      (reason: Error) => reason,
    ),
  );
  expect(error.message).not.toContain(PASSWORD);
  return error.message;
}

const messages = (level: string) => recorded.lines.filter((line) => line.level === level).map(({ message }) => message);

describe("what must be there", () => {
  test("change data capture of the database", async () => {
    server.database = { ...server.database, is_cdc_enabled: false };
    const fault = await faultOf();
    expect(fault).toContain("off in database shop");
    expect(fault).toContain("EXEC sys.sp_cdc_enable_db;");
    expect(fault).toContain("S3 or more");
  });

  test("a table that the user may see", async () => {
    server.database = { ...server.database, is_tracked_by_cdc: null };
    const fault = await faultOf();
    expect(fault).toContain("no table [dbo].[outbox] in database shop that user relay may see");
    expect(fault).toContain("GRANT SELECT ON [dbo].[outbox] TO [relay];");
  });

  test("a capture instance of the table", async () => {
    server.database = { ...server.database, is_tracked_by_cdc: false };
    const table = { schema: "app", name: "it's", idColumn: "message]id" };
    expect(await faultOf(follow(null, changeLog({ table })))).toContain(
      "EXEC sys.sp_cdc_enable_table @source_schema = N'app', @source_name = N'it''s', @role_name = NULL, @supports_net_changes = 0, @captured_column_list = N'[message]]id]';",
    );
    expect(server.sent[0]?.values).toEqual({ table: "[app].[it's]" });
  });

  test.each([
    ["shows no instance", () => (server.instances = [])],
    ["denies access", () => server.failures.set("capture instances", serverError(22981, "access is denied"))],
    ["denies SELECT", () => server.failures.set("capture instances", serverError(229, "SELECT was denied"))],
  ])("the rights on its columns, where the server %s", async (_, deny) => {
    deny();
    const fault = await faultOf();
    expect(fault).toContain("user relay may not read the changes of table [dbo].[outbox]");
    expect(fault).toContain("GRANT SELECT ON [dbo].[outbox] TO [relay];");
    expect(fault).toContain("membership in the gating role");
  });

  test("membership in the gating role, with the statement where the server tells the role", async () => {
    server.instances = [{ capture_instance: "dbo_outbox", role_name: "cdc_reader", create_date: new Date(0) }];
    server.lowest = lsn(0);
    expect(await faultOf()).toContain("ALTER ROLE [cdc_reader] ADD MEMBER [relay];");
  });
});

describe("what the driver says", () => {
  test.each([
    ["ELOGIN", "Login failed for user 'relay'.", "refused the login of relay to database shop"],
    ["ETIMEOUT", "Failed to connect", "did not answer within 15000 ms"],
    ["EINSTLOOKUP", "Port for sql1 not found", "SQL Server Browser"],
    ["ESOCKET", "connect ECONNREFUSED 192.0.2.1:1433", "is the server running there"],
    ["ESOCKET", "self-signed certificate", "NODE_EXTRA_CA_CERTS"],
  ])("%s: %s", async (code, message, expected) => {
    server.open = () => Promise.reject(Object.assign(new Error(message), { name: "ConnectionError", code }));
    const fault = await faultOf();
    expect(fault).toContain("db.example.com:1433");
    expect(fault).toContain(expected);
  });

  test("a statement that the server refuses is named with its number", async () => {
    server.failures.set("range", serverError(1222, "Lock request time out period exceeded."));
    expect(await faultOf()).toBe(
      'db.example.com:1433, database shop: the statement "range" failed: Lock request time out period exceeded. (error 1222)',
    );
  });

  test.each([
    ["ETIMEOUT", "was not answered within 10000 ms"],
    ["ECLOSE", "its connection broke"],
  ])("a statement without an answer: %s", async (code, expected) => {
    server.failures.set("range", Object.assign(new Error("no answer"), { name: "RequestError", code }));
    expect(await faultOf()).toContain(expected);
  });

  test("a connection that could not be made again", async () => {
    const lost = Object.assign(new Error("connect ECONNREFUSED"), { name: "ConnectionError", code: "ESOCKET" });
    server.failures.set("poll", lost);
    expect(await faultOf()).toContain("db.example.com:1433: no connection");
  });
});

describe("how often the capture job scans", () => {
  const notice = async () => {
    await followed();
    expect(recorded.lines).toHaveLength(1);
    return recorded.lines[0];
  };

  test("with a pause: a warning with the statements that end it", async () => {
    server.job = [{ continuous: true, pollinginterval: "5" }];
    const line = await notice();
    expect(line?.level).toBe("warn");
    expect(line?.message).toContain("slower than polling");
    expect(line?.fields).toEqual({
      scanIntervalSeconds: 5,
      remedy:
        "EXEC sys.sp_cdc_change_job @job_type = N'capture', @continuous = 1, @pollinginterval = 0; EXEC sys.sp_cdc_stop_job @job_type = N'capture'; EXEC sys.sp_cdc_start_job @job_type = N'capture';",
    });
  });

  test("without a pause: no warning", async () => {
    expect(await notice()).toMatchObject({ level: "info", fields: { scanIntervalSeconds: 0 } });
  });

  test("by a schedule", async () => {
    server.job = [{ continuous: false, pollinginterval: "0" }];
    expect((await notice())?.message).toContain("only when its schedule starts it");
  });

  test.each([
    ["no job", () => (server.job = []), "sp_cdc_add_job"],
    ["a job that does not run", () => (server.running = 0), "sp_cdc_start_job"],
  ])("%s", async (_, remove, remedy) => {
    remove();
    expect(await notice()).toMatchObject({ level: "warn", fields: { remedy: expect.stringContaining(remedy) } });
  });

  test.each([229, 916])("not readable (error %d): says why", async (number) => {
    server.failures.set("capture job", serverError(number, "denied"));
    const line = await notice();
    expect(line?.level).toBe("info");
    expect(line?.fields.reason).toContain(`(error ${number})`);
  });

  test("in Azure SQL Database: every 20 s, without reading msdb", async () => {
    server.database = { ...server.database, engine_edition: 5 };
    expect(await notice()).toMatchObject({ level: "warn", fields: { scanIntervalSeconds: 20 } });
    expect(server.count("capture job")).toBe(0);
  });
});

describe("where it begins", () => {
  test("without a saved position at the present", async () => {
    server.changes = [{ lsn: lsn(50), operation: 2, ageMs: 10 }];
    await followed();
    expect(told).toEqual(["following", "reached 100"]);
    expect(messages("warn")).toEqual([]);
  });

  test("at the saved position: what came since is told at once", async () => {
    server.changes = [
      { lsn: lsn(50), operation: 2, ageMs: 3000 },
      { lsn: lsn(60), operation: 2, ageMs: 2000 },
    ];
    await followed(lsn(50));
    expect(told).toEqual(["following", "inserted -2000", "reached 100"]);
    expect(messages("warn")).toEqual([]);
  });

  test.each([1, 100])("at a saved position that is an end of the range (%d)", async (position) => {
    await followed(lsn(position));
    expect(told[0]).toBe("following");
    expect(messages("warn")).toEqual([]);
  });

  test("at the present when a cleanup went past the saved position", async () => {
    server.lowest = lsn(80);
    server.changes = [{ lsn: lsn(90), operation: 2 }];
    await followed(lsn(79));
    expect(told).toEqual(["following", "reached 100"]);
    const [warning] = recorded.lines.filter(({ level }) => level === "warn");
    expect(warning?.message).toContain("the poller finds what came before");
    expect(warning?.fields).toMatchObject({ position: lsn(79), lowest: lsn(80), highest: lsn(100) });
  });

  test.each([
    ["of a database that was restored", lsn(101), "beyond the end of the captured changes"],
    ["when what was saved is not an LSN", "0/16B3748", "is not an LSN"],
  ])("at the present %s", async (_, position, warning) => {
    await followed(position);
    expect(told).toEqual(["following", "reached 100"]);
    expect(messages("warn")).toEqual([expect.stringContaining(warning)]);
  });

  test("before the first scan of the capture job, with a warning", async () => {
    server.lowest = null;
    server.highest = null;
    await followed();
    expect(told).toEqual(["following"]);
    expect(messages("warn")).toEqual([expect.stringContaining("has not yet scanned")]);
    server.lowest = lsn(10);
    await captured(20, { lsn: lsn(15), ageMs: 5 });
    expect(told).toEqual(["following", "inserted -5", "reached 20"]);
  });
});

describe("looking", () => {
  test("tells inserts, and no other change", async () => {
    await followed();
    told = [];
    await captured(101, { operation: 1 });
    await captured(102, { operation: 3 }, { operation: 4 });
    await captured(105, { lsn: lsn(103), ageMs: 40 }, { lsn: lsn(104), ageMs: 15 }, { operation: 1 });
    expect(told).toEqual(["reached 101", "reached 102", "inserted -15", "reached 105"]);
  });

  test("is every 100 ms by default, with one statement each", async () => {
    await followed();
    const before = server.sent.length;
    await pauses.next();
    expect(server.sent.length - before).toBe(1);
    expect(pauses.lengths).toEqual([100, 100]);
  });

  test("goes on at an earlier end of the log, as after a failover", async () => {
    await followed();
    told = [];
    await captured(90);
    await captured(91, { ageMs: 1 });
    expect(told).toEqual(["reached 90", "inserted -1", "reached 91"]);
    expect(messages("warn")).toEqual([expect.stringContaining("beyond the end")]);
  });
});

describe("capture instances", () => {
  const older = { capture_instance: "dbo_outbox", role_name: null, create_date: new Date(1000) };
  const newer = { capture_instance: "outbox]2", role_name: null, create_date: new Date(2000) };
  const lookedAt = () => server.sent.at(-1)?.values.instance;

  test("one that was dropped is replaced by another: the function has gone", async () => {
    server.instances = [older];
    await followed();
    told = [];
    server.instances = [newer];
    server.failures.set("poll", serverError(208, "Invalid object name"));
    const looked = server.nextSent("database");
    const begun = captured(101, { ageMs: 1 });
    await looked;
    server.failures.clear();
    await begun;
    expect(lookedAt()).toBe("outbox]2");
    expect(told).toEqual(["inserted -1", "reached 101"]);
  });

  test.each([
    ["one that was dropped, and no other there: the fault says how to make it", false, "EXEC sys.sp_cdc_enable_table"],
    ["a right that was taken away while it follows", true, "user relay may not read the changes"],
  ])("%s", async (_, is_tracked_by_cdc, fault) => {
    const { following } = await followed();
    server.lowest = lsn(0);
    server.database = { ...server.database, is_tracked_by_cdc };
    void captured(101);
    expect(await faultOf(following)).toContain(fault);
  });

  test("what goes on failing is a fault", async () => {
    const { following } = await followed();
    server.failures.set("poll", serverError(313, "An insufficient number of arguments were supplied"));
    const before = server.count("poll");
    void pauses.next();
    expect(await faultOf(following)).toContain("(error 313)");
    expect(server.count("poll") - before).toBe(2);
  });
});

describe("an abort", () => {
  test.each(["database", "capture instances", "capture job", "range", "poll"])(
    "ends a statement that hangs: %s",
    async (name) => {
      server.hanging.add(name);
      const sent = server.nextSent(name);
      const following = follow();
      await sent;
      controller.abort();
      await within(15_000, "the end", following);
      expect(server.closed).toBe(1);
    },
  );

  test("ends a pause", async () => {
    const { following } = await followed();
    controller.abort();
    await within(15_000, "the end", following);
    expect(server.closed).toBe(1);
  });

  test("while it connects makes no session", async () => {
    const { open } = server;
    server.open = async (...values) => {
      controller.abort();
      return await open(...values);
    };
    await within(15_000, "the end", follow());
    expect(server.opened).toBe(0);
  });
});
