import path from "node:path";
import { beforeAll, expect, test } from "@jest/globals";
import pg from "pg";
import { startEmbeddedPostgres } from "../../../src/dev/embeddedPostgres.ts";
import { TEST_APPLICATION_NAME } from "../../support/databases.ts";
import { describeWithTools } from "../../support/describeWithTools.ts";
import { eventually } from "../../support/eventually.ts";
import { freePort } from "../../support/ports.ts";
import { statementsOf } from "../../support/runbook.ts";
import { ordersTo, type Service, useServices } from "../../support/service.ts";
import { startTcpProxy, type TcpProxy } from "../../support/tcpProxy.ts";
import { useAlerts, whileDoing } from "./useAlerts.ts";

/** Alerts of change capture, over a PostgreSQL of their own: what a slot holds back, and what it loses, is the whole server's. */

const LABELS = { namespace: "shop", job: "svc", instance: "one" };

describeWithTools(["prometheus"], "Prometheus over a process that captures", () => {
  const services = useServices("block");
  const alerts = useAlerts(services, "capture", {
    // Five minutes take three seconds: within them the lag changes at least once, however slow the capture is.
    factor: 100,
    thresholds: [
      { alert: "SvcCaptureLag", text: "> 30", with: "> 0.5" },
      { alert: "SvcReplicationSlotLag", text: "> 5e9", with: "> 5e6" },
    ],
  });
  let connect: () => Promise<pg.Client>;
  let query: (sql: string) => Promise<readonly pg.QueryResultRow[]>;
  let proxy: TcpProxy;
  let start: () => Promise<Service>;
  let service: Service;

  beforeAll(async () => {
    const settings = { min_wal_size: "32MB", max_wal_size: "32MB" };
    const server = await startEmbeddedPostgres({ dataDirectory: services.folder(), settings });
    services.defer(() => server.stop("immediate"));
    connect = async () => {
      const client = new pg.Client({ connectionString: server.url(), application_name: TEST_APPLICATION_NAME });
      // A test that ends this session by force says so itself.
      client.on("error", () => {});
      await client.connect();
      services.defer(() => client.end());
      return client;
    };
    const client = await connect();
    query = async (sql) => (await client.query(sql)).rows;
    proxy = await startTcpProxy(server);
    services.defer(() => proxy.close());

    const { host, port, user, database, password } = server;
    const address = { jdbcUrl: `jdbc:postgresql://${host}:${port}/${database}`, user, password: password.reveal() };
    const receiver = await services.receiver();
    const stateDirectory = path.join(services.folder(), "state");
    const servicePort = await freePort();
    const config = ordersTo(receiver, {
      outbox: {
        capture: {
          enabled: true,
          mode: "postgres-logical",
          stateDirectory,
          connection: { port: proxy.port },
        },
      },
    });
    start = () => services.start({ database: address, config, port: servicePort });
    service = await start();
    await publish();
    await query("CREATE TABLE bulk (payload text)");
    alerts.prometheus.scrape([{ port: servicePort, labels: LABELS }]);
    await captureIsUp();
  }, 60_000);

  const captureIsUp = async () => {
    await eventually(async () => expect((await service.readiness()).components["outbox-capture"]).toBe("up"), {
      timeoutMs: 40_000,
      label: "capture is up",
    });
    await alerts.shows('svc_component_up{component="outbox-capture"} == 1');
    await alerts.ends("SvcCaptureDown");
  };

  const insert = () => query("INSERT INTO outbox (topic, payload) VALUES ('orders.made', '{}')");
  const publish = () => query("CREATE PUBLICATION svc_outbox FOR TABLE outbox (id) WITH (publish = 'insert')");
  const writeLog = () => query("INSERT INTO bulk SELECT repeat('x', 1000) FROM generate_series(1, 10000)");
  /** A transaction that stays open, and the id of its session. */
  const openTransaction = async () => {
    const client = await connect();
    await client.query("BEGIN");
    // A transaction that has written nothing holds nothing back.
    await client.query("INSERT INTO bulk VALUES ('open')");
    const { rows } = await client.query("SELECT pg_backend_pid() AS pid");
    return { client, pid: rows[0].pid as number };
  };

  test("SvcCaptureLag: what the server sends comes slowly", async () => {
    // The lag is that of the last insert: a single insert that came late on a busy machine would be shown for ever.
    await whileDoing(insert, () => alerts.shows("svc_capture_lag_seconds < 0.5"));
    const unconfirmed = "svc_replication_slot_unconfirmed_bytes";
    await alerts.shows(`${unconfirmed} < 10000`);
    proxy.setDelay(700);
    const { annotations } = await whileDoing(insert, () => alerts.fires("SvcCaptureLag", LABELS));
    // By this the runbook tells a capture that does not keep up.
    await whileDoing(insert, () => alerts.shows(`${unconfirmed} > 10000`));
    proxy.setDelay(0);
    // Inserts continue: the alert ends because they are captured in time.
    await whileDoing(insert, () => alerts.ends("SvcCaptureLag"));
    await whileDoing(insert, () => alerts.shows("svc_capture_lag_seconds < 0.5"));
    expect(annotations.description).toMatch(/^one sees an outbox insert \S+.* after its commit\.$/);
  });

  test("SvcReplicationSlotLag: a transaction stays open while others write", async () => {
    const [slots = "", holders = ""] = statementsOf("docs/capture.md", "The slot and the disk");
    const { pid } = await openTransaction();
    await writeLog();
    const { annotations } = await alerts.fires("SvcReplicationSlotLag", LABELS);
    const [slot] = await query(slots);
    const held = await query(holders);
    await query(`SELECT pg_terminate_backend(${pid})`);
    // Else the log goes within the quarter of a minute that the server takes by itself.
    await query("CHECKPOINT");
    await alerts.ends("SvcReplicationSlotLag");
    expect(annotations.description).toMatch(/^The server keeps 1\d\.\d+MiB of its log for the slot that one reads\.$/);
    expect(slot).toMatchObject({ slot_name: "svc_outbox", active: true, held_back: expect.stringMatching(/^1\d MB$/) });
    expect(held).toContainEqual(expect.objectContaining({ pid, state: "idle in transaction" }));
  });

  test("SvcReplicationSlotLag: the publication is gone, so that nobody reads the log", async () => {
    const [drop = ""] = statementsOf("docs/runbook.md", "SvcReplicationSlotLag");
    // A slot in use cannot be dropped.
    expect(await query(drop)).toEqual([]);
    await query("DROP PUBLICATION svc_outbox");
    await query("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active");
    await alerts.shows('svc_component_up{component="outbox-capture"} == 0');
    await writeLog();
    await alerts.fires("SvcReplicationSlotLag", LABELS);

    // As the runbook has it for a disk that is nearly full; the service makes a new slot.
    await service.stop();
    expect(await query(drop)).toHaveLength(1);
    await publish();
    service = await start();
    await captureIsUp();
    await alerts.ends("SvcReplicationSlotLag");
  });

  test("SvcReplicationSlotLost: a transaction stays open for longer than the server keeps its log", async () => {
    await query("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'");
    await query("SELECT pg_reload_conf()");
    const { client } = await openTransaction();
    for (let n = 0; n < 5; n += 1) {
      await writeLog();
      await query("SELECT pg_switch_wal()");
      await query("CHECKPOINT");
    }
    const { annotations } = await alerts.fires("SvcReplicationSlotLost", { ...LABELS, status: "lost" });
    const [, statement = ""] = await service.process.waitForLine(
      /the replication slot svc_outbox is lost.*To start over run: (SELECT [^.]*)\./,
    );
    await client.query("ROLLBACK");
    await query(JSON.parse(`"${statement}"`));
    await alerts.ends("SvcReplicationSlotLost");
    await captureIsUp();
    expect(annotations.summary).toBe("The replication slot is lost");
  });

  alerts.testCoverage();
});
