import { describe, expect, test } from "@jest/globals";
import { parseJdbcUrl } from "../../../src/config/databases.ts";

describe("PostgreSQL URLs", () => {
  const parse = (rest: string) => parseJdbcUrl("postgresql", `jdbc:postgresql://${rest}`);

  test.each([
    ["h/d", [{ host: "h", port: 5432 }], "d"],
    ["h:6432/d", [{ host: "h", port: 6432 }], "d"],
    ["/d", [{ host: "localhost", port: 5432 }], "d"],
    ["h", [{ host: "h", port: 5432 }], undefined],
    ["h/", [{ host: "h", port: 5432 }], undefined],
    ["h?sslmode=disable", [{ host: "h", port: 5432 }], undefined],
    ["[::1]/d", [{ host: "::1", port: 5432 }], "d"],
    ["[2001:db8::1]:6432/d", [{ host: "2001:db8::1", port: 6432 }], "d"],
    [
      "a:1,b,[::1]:3/d",
      [
        { host: "a", port: 1 },
        { host: "b", port: 5432 },
        { host: "::1", port: 3 },
      ],
      "d",
    ],
    ["h/my%20d%2Fb", [{ host: "h", port: 5432 }], "my d/b"],
  ])("%s has these hosts and this database", (rest, hosts, database) => {
    expect(parse(rest)).toMatchObject({ target: { type: "postgresql", hosts, database }, warnings: [] });
  });

  test.each([
    ["", { sslMode: "prefer", targetServerType: "any", applicationName: undefined, currentSchema: undefined }],
    ["sslmode=verify-full&sslrootcert=%2Fca.pem", { sslMode: "verify-full", sslRootCert: "/ca.pem" }],
    ["sslmode=verify-ca&sslcert=/c.pem&sslkey=/k.pem", { sslMode: "verify-ca", sslCert: "/c.pem", sslKey: "/k.pem" }],
    ["ssl=true", { sslMode: "verify-full" }],
    ["ssl", { sslMode: "verify-full" }],
    ["ssl=false", { sslMode: "prefer" }],
    ["ssl=true&sslmode=require", { sslMode: "require" }],
    ["targetServerType=primary", { targetServerType: "primary" }],
    ["targetServerType=master", { targetServerType: "primary" }],
    ["ApplicationName=my%20app&currentSchema=events", { applicationName: "my app", currentSchema: "events" }],
  ])("the parameters %s are honoured", (query, expected) => {
    expect(parse(`h/d?${query}`)).toMatchObject({ target: expected, warnings: [] });
  });

  test.each([
    ["applicationname=x", 'JDBC parameter "applicationname" has no effect; did you mean "ApplicationName"?'],
    ["prepareThreshold=0", 'JDBC parameter "prepareThreshold" has no effect'],
    ["connectTimeout=5", 'JDBC parameter "connectTimeout" has no effect: set database.connectionTimeoutMs'],
  ])("the parameter %s is a warning", (query, warning) => {
    expect(parse(`h/d?${query}`).warnings).toEqual([warning]);
  });

  test.each([
    ["h:0/d", "expected a port from 1 to 65535"],
    ["h:70000/d", "expected a port from 1 to 65535"],
    ["h:x/d", "names no host"],
    ["::1/d", "names no host"],
    ["a b/d", "names no host"],
    ["u:p@h/d", "must hold no user name or password"],
    ["u:p/q@h/d", "must hold no user name or password"],
    ["h/d?user=u", "must hold no user name or password"],
    ["h/d?password=p", "must hold no user name or password"],
    ["h/d?sslmode=on", "parameter sslmode: expected one of disable, allow, prefer, require, verify-ca, verify-full"],
    ["h/d?targetServerType=secondary", "parameter targetServerType: expected any or primary"],
    ["h/d?ssl=maybe", "parameter ssl: expected true or false"],
    ["h/100%", 'holds a "%" that begins no percent-encoded character'],
  ])("%s is refused", (rest, message) => {
    expect(() => parse(rest)).toThrow(message);
  });

  test.each(["My-Schema", "a,b", "", "1st", "a b", "x".repeat(64)])(
    "refuse the schema %j, as the start would",
    (name) => {
      expect(() => parse(`h/d?currentSchema=${encodeURIComponent(name)}`)).toThrow(
        `parameter currentSchema: expected the name of one schema`,
      );
    },
  );
});

describe("SQL Server URLs", () => {
  const parse = (rest: string) => parseJdbcUrl("sqlserver", `jdbc:sqlserver://${rest}`);

  test.each([
    ["h;databaseName=d", { host: "h", port: 1433, instance: undefined, database: "d" }],
    ["h:1444;database=d;", { host: "h", port: 1444, database: "d" }],
    ["h\\sql1;databaseName=d", { host: "h", port: undefined, instance: "sql1" }],
    ["h\\sql1:1444;databaseName=d", { host: "h", port: 1444, instance: "sql1" }],
    [";serverName=h;portNumber=1444;instanceName=i;databaseName=d", { host: "h", port: 1444, instance: "i" }],
    [";serverName={2001:db8::1};databaseName=d", { host: "2001:db8::1", port: 1433 }],
    ["[::1]:1444;databaseName=d", { host: "::1", port: 1444 }],
    ["h;DATABASENAME=d;Encrypt=FALSE", { database: "d", encrypt: false }],
    ["h;databaseName={a;b}}c};applicationName={x y}", { database: "a;b}c", applicationName: "x y" }],
    ["h;;databaseName = d ; encrypt = strict", { database: "d", encrypt: "strict" }],
    [
      "h;databaseName=d",
      {
        encrypt: true,
        trustServerCertificate: false,
        multiSubnetFailover: false,
        loginTimeoutMs: 30_000,
        applicationName: undefined,
      },
    ],
    ["ag;databaseName=d;MultiSubnetFailover=True", { multiSubnetFailover: true }],
    [
      "h;databaseName=d;trustServerCertificate=true;loginTimeout=5;hostNameInCertificate=*.h",
      { trustServerCertificate: true, loginTimeoutMs: 5_000, hostNameInCertificate: "*.h" },
    ],
  ])("%s is read", (rest, expected) => {
    expect(parse(rest)).toMatchObject({ target: { type: "sqlserver", ...expected }, warnings: [] });
  });

  test("an unknown property is a warning with the nearest name", () => {
    expect(parse("h;databaseName=d;trustServerCertificat=true").warnings).toEqual([
      'JDBC parameter "trustServerCertificat" has no effect; did you mean "trustServerCertificate"?',
    ]);
  });

  test.each([
    ["h", "names no database: add ;databaseName=<name>"],
    [";databaseName=d", "names no server"],
    ["a,b;databaseName=d", "names several servers"],
    ["h;databaseName=d;user=sa", "must hold no user name or password"],
    ["h;databaseName=d;Password={a;b}", "must hold no user name or password"],
    ["u:p@h;databaseName=d", "must hold no user name or password"],
    ["h;databaseName={d", "a value that begins with { must end with }"],
    ["h;databaseName={d}x", "a value that begins with { must end with }"],
    ["h;databaseName=d;encrypt", "a property has no value"],
    ["h;databaseName=d;encrypt=maybe", "parameter encrypt: expected true, false or strict"],
    ["h;databaseName=d;loginTimeout=soon", "parameter loginTimeout: expected seconds"],
    ["h;databaseName=d;portNumber=0", "expected a port from 1 to 65535"],
  ])("%s is refused", (rest, message) => {
    expect(() => parse(rest)).toThrow(message);
  });
});

test("a URL of the other database says so", () => {
  expect(() => parseJdbcUrl("postgresql", "jdbc:sqlserver://h;databaseName=d")).toThrow(
    "is a URL of sqlserver, but database.type is postgresql: expected jdbc:postgresql://...",
  );
});
