import { describe, expect, test } from "@jest/globals";
import { capture, DATABASE, database, inspect, LOGICAL } from "./support.ts";

/** What stops the start in the section `database`: whole files, the key path, and a part of the message. */
const REFUSED_DATABASES: readonly (readonly [string, string, string])[] = [
  [
    database("outboxTableName: events"),
    "database.migrate",
    "must be false with a renamed table or column (outboxTableName)",
  ],
  [database("columnMapping: { inbox: { headers: hdr } }"), "database.migrate", "(columnMapping.inbox.headers)"],
  [database("destinationTableName: targets"), "database.migrate", "(destinationTableName)"],
  [
    `${database("migrate: false")}\n  destinationTableName: inbox`,
    "database.destinationTableName",
    'must differ from database.inboxTableName; both are "inbox"',
  ],
  [
    database("inboxTableName: my-inbox"),
    "database.inboxTableName",
    'expected a letter or _ first, then letters, digits and _; found "my-inbox"',
  ],
  [
    database("columnMapping: { outbox: { key: 1k } }"),
    "database.columnMapping.outbox.key",
    "expected a letter or _ first",
  ],
  [
    `${database("migrate: false")}\n  inboxTableName: ${"a".repeat(64)}`,
    "database.inboxTableName",
    "has 64 characters, at most 63 on postgresql",
  ],
  [
    `${database("migrate: false")}\n  inboxTableName: outbox`,
    "database.inboxTableName",
    "must differ from database.outboxTableName",
  ],
  [
    `${database("migrate: false")}\n  columnMapping: { outbox: { key: topic } }`,
    "database.columnMapping.outbox.key",
    'names the column "topic", as topic does: each needs its own',
  ],
  [
    database("type: sqlserver"),
    "database.url",
    "is a URL of postgresql, but database.type is sqlserver: expected jdbc:sqlserver://...",
  ],
  [database("type: oracle"), "database.type", "expected one of postgresql, sqlserver"],
  [DATABASE.replace("jdbc:", ""), "database.url", "expected a JDBC URL that begins with jdbc:postgresql://"],
  [
    `${DATABASE.replace("db.internal:5432", "a,b")}${capture(LOGICAL)}`,
    "outbox.capture.connection.hostname",
    "is required because database.url names several hosts",
  ],
  [database("poolSize: 0"), "database.poolSize", "from 1, found 0"],
  ["database: { username: u, password: p }", "database.url", "is required"],
  ["database: { url: 'jdbc:postgresql://h/d', password: p }", "database.username", "is required"],
  ["database: { url: 'jdbc:postgresql://h/d', username: u }", "database.password", "is required"],
];

describe("what stops the start in the database section", () => {
  test.each(REFUSED_DATABASES)("%s", (yaml, path, message) => {
    const { problems } = inspect(`${yaml}\n`);
    expect(problems).toEqual([expect.stringContaining(message)]);
    expect(problems[0]?.split(": ", 1)).toEqual([path]);
  });
});
