import { rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import type { JetStreamManager } from "nats";
import { Secret } from "../../src/model/secret.ts";
import { describeWith, START_TIMEOUT_MS } from "../support/brokers/index.ts";
import { natsAnswers, natsConfiguration } from "../support/brokers/nats.ts";
import { lastingPorts } from "../support/brokers/ports.ts";
import { findNats } from "../support/brokers/programs.ts";
import { untilReady } from "../support/brokers/ready.ts";
import { serverFolder } from "../support/brokers/runFolder.ts";
import { type ServerProcess, startServerProcess } from "../support/brokers/serverProcess.ts";
import { eventually } from "../support/eventually.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { RecordingIntake } from "../support/recordingIntake.ts";
import { failure, NatsBench, publish } from "./natsSetup.ts";

const PASSWORD = "svc-secret";
const ADMIN = { user: "admin", password: PASSWORD };
/** Each user lacks one right; `orders.>` is the subject of the stream. */
const USERS = {
  publisher: { publish: { deny: ["orders.secret"] } },
  deaf: { subscribe: { deny: ["_INBOX.>"] } },
  blind: { publish: { deny: ["$JS.API.CONSUMER.INFO.>"] } },
  unable: { publish: { deny: ["$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.DURABLE.CREATE.>"] } },
  thirsty: { publish: { deny: ["$JS.API.CONSUMER.MSG.NEXT.>"] } },
  mute: { publish: { deny: ["$JS.ACK.>"] } },
};

describeWith(["nats"], "permissions at a NATS server", () => {
  let folder: string;
  let server: ServerProcess;
  let servers: string;
  let bench: NatsBench;
  let manager: JetStreamManager;

  beforeAll(async () => {
    folder = serverFolder("nats");
    const [port = 0] = await lastingPorts(1);
    const plain = natsConfiguration({ host: "127.0.0.1", port, storeFolder: path.join(folder, "data"), options: {} });
    const users = [
      ADMIN,
      ...Object.entries(USERS).map(([user, permissions]) => ({ user, password: PASSWORD, permissions })),
    ];
    const file = path.join(folder, "nats.conf");
    writeFileSync(file, JSON.stringify({ ...JSON.parse(plain), authorization: { users } }));
    const program = findNats() ?? "nats-server";
    server = startServerProcess({ program, args: ["-c", file], env: { HOME: folder }, folder, shared: false });
    await untilReady("the NATS server", folder, server, () => natsAnswers(port, ADMIN));
    servers = `127.0.0.1:${port}`;
  }, START_TIMEOUT_MS);
  afterAll(async () => {
    await server.end("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  });
  beforeEach(async () => {
    bench = new NatsBench();
    manager = await bench.manager(servers, { user: ADMIN.user, pass: ADMIN.password });
    await manager.streams.add({ name: "ORDERS", subjects: ["orders.>"] });
  });
  afterEach(async () => {
    await manager.streams.delete("ORDERS");
    await bench.close();
  });
  failOnLeaks();

  const login = (username: keyof typeof USERS) => ({ servers, username, password: new Secret(PASSWORD) });

  describe.each([true, false])("the destination with jetStream %s", (jetStream) => {
    test("fails a publish that is not permitted, at once and with this reason, and no other", async () => {
      const destination = bench.destination({ ...login("publisher"), jetStream });
      const [refused, ...others] = await Promise.allSettled(
        ["orders.secret", "orders.a", "orders.b", "orders.c"].map((subject) => publish(destination, subject)),
      );
      expect(refused).toMatchObject({
        status: "rejected",
        reason: { code: "permission", message: expect.stringMatching(/may not publish to orders\.secret/) },
      });
      expect(others.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "fulfilled"]);
    });
  });

  test("the destination says when it may not receive acknowledgements", async () => {
    const error = await failure(publish(bench.destination(login("deaf")), "orders.a"));
    expect(error).toMatchObject({
      code: "permission",
      message: expect.stringMatching(/permit subscriptions to _INBOX/),
    });
  });

  test.each([
    ["blind", /lacks a permission .*CONSUMER\.INFO/],
    ["unable", /lacks a permission .*CONSUMER\.(DURABLE\.)?CREATE/],
    ["deaf", /permission|_INBOX/],
    ["thirsty", /may not publish to \$JS\.API\.CONSUMER\.MSG\.NEXT\.ORDERS\.svc/],
    ["mute", /may not publish to \$JS\.ACK\./],
  ] as const)("the source of the user %s says what it lacks", async (user, reason) => {
    const intake = new RecordingIntake();
    const source = bench.source({ ...login(user), stream: "ORDERS", ackWaitMs: 300 }, intake);
    await source.start();
    await publish(bench.destination(login("publisher")), "orders.a");
    await eventually(() => expect(source.check()).rejects.toThrow(reason), { timeoutMs: 10_000 });
  });
});
