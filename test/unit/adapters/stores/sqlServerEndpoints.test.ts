import { expect, test } from "@jest/globals";
import { type PoolOptions, poolConfig } from "../../../../src/adapters/stores/sqlserver/endpoints.ts";
import { Secret } from "../../../../src/model/secret.ts";

const OPTIONS: PoolOptions = {
  host: "db.example.com",
  port: 1433,
  instance: undefined,
  database: "shop",
  username: "svc",
  password: new Secret("pa;ss{}"),
  encrypt: true,
  trustServerCertificate: false,
  hostNameInCertificate: undefined,
  multiSubnetFailover: false,
  loginTimeoutMs: 15_000,
  applicationName: "svc",
  poolSize: 7,
  connectionTimeoutMs: 30_000,
};

const configOf = (options: Partial<PoolOptions>) => poolConfig({ ...OPTIONS, ...options });

test("address, database and login are passed on unchanged", () => {
  expect(configOf({})).toMatchObject({
    server: "db.example.com",
    port: 1433,
    database: "shop",
    user: "svc",
    password: "pa;ss{}",
    options: { encrypt: true, trustServerCertificate: false, appName: "svc" },
  });
});

test("an instance is looked up by name only when no port is known", () => {
  const named = configOf({ port: undefined, instance: "sql1" });
  expect(named).not.toHaveProperty("port");
  expect(named.options).toMatchObject({ instanceName: "sql1" });
  const both = configOf({ port: 1444, instance: "sql1" });
  expect(both.port).toBe(1444);
  expect(both.options).not.toHaveProperty("instanceName");
});

test.each([true, false, "strict"] as const)("encrypt: %p", (encrypt) => {
  expect(configOf({ encrypt }).options).toMatchObject({ encrypt });
});

test("the name in the certificate may be another one, but no address", () => {
  expect(configOf({ hostNameInCertificate: "sql.example.com" }).options).toMatchObject({
    serverName: "sql.example.com",
  });
  expect(configOf({ hostNameInCertificate: "192.0.2.1" }).options).not.toHaveProperty("serverName");
  expect(configOf({}).options).not.toHaveProperty("serverName");
});

test("the addresses of a listener are tried at once if the URL says so", () => {
  expect(configOf({}).options).toMatchObject({ multiSubnetFailover: false });
  expect(configOf({ multiSubnetFailover: true }).options).toMatchObject({ multiSubnetFailover: true });
});

test("the pool has the configured size, and the shorter of both times bounds a connection", () => {
  expect(configOf({}).pool).toMatchObject({ min: 0, max: 7, acquireTimeoutMillis: 30_000 });
  expect(configOf({}).connectionTimeout).toBe(15_000);
  expect(configOf({ loginTimeoutMs: 60_000 }).connectionTimeout).toBe(30_000);
});

test("what the statements rely on is asked for: UTC, ids in small letters, the SET options of filtered indexes", () => {
  expect(configOf({}).options).toMatchObject({ useUTC: true, lowerCaseGuids: true, enableArithAbort: true });
});
