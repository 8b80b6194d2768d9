import { expect, test } from "@jest/globals";
import { type SqlServerCdcOptions, sqlServerCdc } from "../../../../src/adapters/capture/sqlserver-cdc/index.ts";
import { connectionConfig } from "../../../../src/adapters/capture/sqlserver-cdc/session.ts";
import type { Endpoint } from "../../../../src/adapters/stores/sqlserver/endpoints.ts";
import { startBlackHole } from "../../../support/blackHole.ts";
import { eventually } from "../../../support/eventually.ts";
import { failOnLeaks } from "../../../support/leaks.ts";
import { freePort } from "../../../support/ports.ts";
import { ManualClock, recordingLog } from "../../../support/recorders.ts";
import { within } from "../../../support/within.ts";
import { ENDPOINT, PASSWORD } from "./scriptedCdc.ts";

/** The real driver, as far as it comes without a server. */

failOnLeaks();

function follow(changed: Partial<Endpoint>, signal: AbortSignal): Promise<void> {
  const options: SqlServerCdcOptions = {
    ...ENDPOINT,
    ...changed,
    table: { schema: "dbo", name: "outbox", idColumn: "id" },
    clock: new ManualClock(),
    log: recordingLog().log,
    wait: () => Promise.reject(new Error("there is nothing to wait for without a connection")),
  };
  const unexpected = () => {
    throw new Error("nothing is told without a connection");
  };
  return sqlServerCdc(options).follow(
    null,
    { following: unexpected, inserted: unexpected, reached: unexpected },
    signal,
  );
}

const faultOf = (following: Promise<void>) =>
  within(
    4000,
    "the fault",
    following.then(
      () => "no fault",
      (error: Error) => error.message,
    ),
  );

/** A timer that is left keeps the process from its end. */
const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length;
const timersEnd = (before: number) => eventually(() => timers() <= before, { label: "every timer's end" });

test("nobody listens on the port", async () => {
  const port = await freePort();
  const fault = await faultOf(follow({ port }, new AbortController().signal));
  expect(fault).toBe(
    `127.0.0.1:${port}: no connection: Could not connect (sequence): connect ECONNREFUSED 127.0.0.1:${port}: is the server running there, and does it listen on TCP?`,
  );
  expect(fault).not.toContain(PASSWORD);
});

test("a server that does not answer is given up in time", async () => {
  await using hole = await startBlackHole();
  const fault = await faultOf(follow({ port: hole.port, connectionTimeoutMs: 200 }, new AbortController().signal));
  expect(fault).toContain(`127.0.0.1:${hole.port} did not answer within 200 ms`);
  expect(hole.givenUp).toBe(1);
});

test("an abort while the login waits for an answer ends the connection at once", async () => {
  await using hole = await startBlackHole();
  const before = timers();
  const controller = new AbortController();
  const following = follow({ port: hole.port, connectionTimeoutMs: 15_000 }, controller.signal);
  await hole.reached;
  controller.abort();
  await within(15_000, "the end", following);
  await timersEnd(before);
});

test("an abort before there is a socket ends the connection as soon as there is one", async () => {
  await using hole = await startBlackHole();
  const before = timers();
  const controller = new AbortController();
  const following = follow({ port: hole.port, connectionTimeoutMs: 15_000 }, controller.signal);
  controller.abort();
  await within(15_000, "the end", following);
  await timersEnd(before);
});

test("an abort before the beginning makes no connection", async () => {
  await follow({ port: 1 }, AbortSignal.abort());
});

const configOf = (changed: Partial<Endpoint>) => connectionConfig({ ...ENDPOINT, ...changed }, () => {});

test("times are bounded, and one connection is all there is", () => {
  expect(configOf({ connectionTimeoutMs: 60_000 })).toMatchObject({
    connectionTimeout: 15_000,
    requestTimeout: 10_000,
    pool: { min: 0, max: 1, acquireTimeoutMillis: 15_000 },
  });
  expect(configOf({ connectionTimeoutMs: 3000 }).connectionTimeout).toBe(3000);
});

test("an instance is looked up by name only when no port is known", () => {
  const named = configOf({ port: undefined, instance: "sql1" });
  expect(named).not.toHaveProperty("port");
  expect(named.options).toMatchObject({ instanceName: "sql1" });
  expect(configOf({ port: 1444, instance: "sql1" }).options).not.toHaveProperty("instanceName");
});

test("encryption is passed on, and a name for the certificate that is no address", () => {
  expect(configOf({ encrypt: "strict", trustServerCertificate: true }).options).toMatchObject({
    encrypt: "strict",
    trustServerCertificate: true,
    appName: "svc",
    useUTC: true,
  });
  expect(configOf({ hostNameInCertificate: "sql.example.com" }).options).toMatchObject({
    serverName: "sql.example.com",
  });
  expect(configOf({ hostNameInCertificate: "192.0.2.1" }).options).not.toHaveProperty("serverName");
});
