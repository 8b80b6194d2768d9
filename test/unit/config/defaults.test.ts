import { describe, expect, test } from "@jest/globals";
import { INBOX_COLUMNS, OUTBOX_COLUMNS } from "../../../src/model/rows.ts";
import { loadWith } from "./support.ts";

describe("defaults", () => {
  test("of column names are those of the tables that the migrations make", () => {
    expect(loadWith("").database.columnMapping).toEqual({ outbox: OUTBOX_COLUMNS, inbox: INBOX_COLUMNS });
  });

  test("a route sends an empty text for a placeholder without value, and lets rows go dead", () => {
    const config = loadWith(
      "destinations: { d: { baseUrl: http://h } }\nroutes: [{ topicPattern: '**', destination: d }]\n",
    );
    expect(config.routes[0]).toEqual({
      topicPattern: "**",
      destination: "d",
      routingKeyMissingFieldDefault: "",
      onExhausted: "dead",
    });
  });

  test("inbox.relay.maxAttempts follows outbox.maxAttempts", () => {
    expect(loadWith("outbox: { maxAttempts: 9 }\n").inbox.relay.maxAttempts).toBe(9);
    expect(loadWith("outbox: { maxAttempts: 9 }\ninbox: { relay: { maxAttempts: 2 } }\n").inbox.relay.maxAttempts).toBe(
      2,
    );
  });

  test("the capture connects with the password of the database unless it has its own", () => {
    const password = (yaml: string) => loadWith(yaml).outbox.capture.connection.password.reveal();
    expect(password("")).toBe("s3cret");
    expect(password("outbox: { capture: { connection: { password: own } } }\n")).toBe("own");
  });

  test("the configuration is frozen all the way down", () => {
    const config = loadWith("sources: { x: { path: p, idempotencyKeyPath: $.id, topic: t } }\n");
    for (const block of [config, config.database, config.database.target, config.sources, config.sources.x]) {
      expect(Object.isFrozen(block)).toBe(true);
    }
  });

  test("a source path gets its leading slash and a base path loses its trailing one", () => {
    const config = loadWith(
      "inbox: { basePath: in/ }\nsources: { x: { path: orders, idempotencyKeyPath: $.id, topic: t } }\n",
    );
    expect([config.inbox.basePath, config.sources.x]).toMatchObject(["/in", { path: "/orders" }]);
  });
});
