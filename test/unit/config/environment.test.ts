// biome-ignore-all lint/suspicious/noTemplateCurlyInString: these are placeholders of the configuration, not of JavaScript
import { describe, expect, test } from "@jest/globals";
import { effectiveConfig, printConfig } from "../../../src/config/print.ts";
import { DATABASE, load, loadWith, problemsOf, warningsOf } from "./support.ts";

const DESTINATION = "destinations: { orders: { baseUrl: http://h } }\n";

describe("SVC_ variables", () => {
  test.each([
    [
      "SVC_DATABASE_COLUMNMAPPING_OUTBOX_AGGREGATETYPE",
      "database",
      { columnMapping: { outbox: { aggregateType: "v" } } },
    ],
    ["SVC_OUTBOX_CAPTURE_CONNECTION_HOSTNAME", "outbox", { capture: { connection: { hostname: "v" } } }],
  ])("%s reaches a nested key", (name, section, expected) => {
    const config = loadWith("", {
      env: { [name]: "v", SVC_DATABASE_MIGRATE: "false" },
    });
    expect(config[section as "database" | "outbox"]).toMatchObject(expected);
  });

  test("set one path, or several by their index, over those of the file", () => {
    const yaml = `sources: { s: { path: /p, idempotencyKeyPath: [$.a, $.b, $.c], eventTypePath: "$['x,y']", topic: t } }`;
    const pathsOf = (env: Readonly<Record<string, string>>) => {
      const { idempotencyKeyPath, eventTypePath } = loadWith(yaml, { env }).sources.s ?? {};
      return [idempotencyKeyPath, eventTypePath];
    };
    const [key, type] = ["SVC_SOURCES_S_IDEMPOTENCYKEYPATH", "SVC_SOURCES_S_EVENTTYPEPATH"];
    expect(pathsOf({})).toEqual([["$.a", "$.b", "$.c"], ["$['x,y']"]]);
    expect(pathsOf({ [key]: "$['p,q']" })).toEqual([["$['p,q']"], ["$['x,y']"]]);
    expect(pathsOf({ [`${key}_1`]: "$.z", [`${type}_0`]: "$.t", [`${type}_1`]: "$.u" })).toEqual([
      ["$.a", "$.z", "$.c"],
      ["$.t", "$.u"],
    ]);
    expect(pathsOf({ [key]: "", [type]: "" })).toEqual([["$.a", "$.b", "$.c"], ["$['x,y']"]]);
    expect(problemsOf(yaml, { env: { [`${key}_2`]: "$..c" } })).toEqual([
      expect.stringMatching(
        /^sources\.s\.idempotencyKeyPath\[2\]: is not a definite JSONPath: .*\(SVC_SOURCES_S_IDEMPOTENCYKEYPATH_2\)$/,
      ),
    ]);
  });

  test("one path is printed alone, several as a list; what is printed loads again", () => {
    const loaded = load(
      `${DATABASE}sources: { s: { path: /p, idempotencyKeyPath: [$.a, $.b], eventTypePath: "$['x,y']", topic: t } }`,
    );
    expect(effectiveConfig(loaded).sources).toMatchObject({
      s: { idempotencyKeyPath: ["$.a", "$.b"], eventTypePath: "$['x,y']" },
    });
    const again = load(printConfig(loaded).replace(/password: .*/, "password: s3cret"));
    expect(again.config.sources).toEqual(loaded.config.sources);
  });

  test("set numbers, booleans, enumerations, durations and secrets", () => {
    const config = loadWith("", {
      env: {
        SVC_SERVER_HTTPPORT: "8081",
        SVC_HTTP_BLOCKPRIVATEADDRESSES: "true",
        SVC_RETENTION_OUTBOX_POLICY: "AGE",
        SVC_RETENTION_OUTBOX_MAXAGE: "30d",
        SVC_DATABASE_PASSWORD: "from env",
      },
    });
    expect(config.server.httpPort).toBe(8081);
    expect(config.http.blockPrivateAddresses).toBe(true);
    expect(config.retention.outbox).toMatchObject({ policy: "AGE", maxAge: 30 * 86_400_000 });
    expect(config.database.password.reveal()).toBe("from env");
  });

  test.each([
    [
      "SVC_OUTBOX_BATCHSIZE",
      "many",
      'outbox.batchSize: expected a whole number from 1, found "many" (SVC_OUTBOX_BATCHSIZE)',
    ],
    [
      "SVC_OUTBOX_BATCHSIZE",
      "1.5",
      'outbox.batchSize: expected a whole number from 1, found "1.5" (SVC_OUTBOX_BATCHSIZE)',
    ],
    ["SVC_DATABASE_MIGRATE", "1", 'database.migrate: expected true or false, found "1" (SVC_DATABASE_MIGRATE)'],
  ])("%s=%s is refused with the variable's name", (name, value, message) => {
    expect(problemsOf("", { env: { [name]: value } })).toEqual([message]);
  });

  test("placeholders are not replaced in variables", () => {
    const config = loadWith("", { env: { SVC_DATABASE_PASSWORD: "a${HOME}", HOME: "/root" } });
    expect(config.database.password.reveal()).toBe("a${HOME}");
  });

  test("an empty variable sets a text to empty", () => {
    const env = { SVC_ADMIN_AUTH_SECRET: "s", SVC_ADMIN_AUTH_SIGNATUREPREFIX: "" };
    expect(loadWith("", { env }).admin.auth).toMatchObject({ kind: "hmac", signaturePrefix: "" });
  });
});

describe("variables for maps", () => {
  test("meet an existing entry in any letter case", () => {
    const config = loadWith("destinations: { Orders: { baseUrl: http://h } }\n", {
      env: { SVC_DESTINATIONS_ORDERS_BASEURL: "http://env" },
    });
    expect(config.destinations).toMatchObject({ Orders: { baseUrl: "http://env" } });
    expect(Object.keys(config.destinations)).toEqual(["Orders"]);
  });

  test("make an entry in small letters when there is none", () => {
    const config = loadWith("", { env: { SVC_DESTINATIONS_ORDERS_BASEURL: "http://env" } });
    expect(config.destinations).toMatchObject({ orders: { kind: "http", baseUrl: "http://env" } });
  });

  test.each(["order-events", "order.events", "order_events"])("meet the entry %s", (name) => {
    const config = loadWith(`destinations: { order: { baseUrl: http://a }, ${name}: { baseUrl: http://h } }\n`, {
      env: { SVC_DESTINATIONS_ORDER_EVENTS_BASEURL: "http://env" },
    });
    expect(config.destinations[name]).toMatchObject({ baseUrl: "http://env" });
  });

  test("several variables make one entry of the kind that their keys select", () => {
    const env = {
      SVC_SOURCES_Q_QUEUENAME: "q",
      SVC_SOURCES_Q_CONNECTIONURL: "amqp://h",
      SVC_SOURCES_Q_TYPE: "rabbitmq",
    };
    expect(loadWith("", { env }).sources.q).toMatchObject({ kind: "rabbitmq", queueName: "q" });
  });

  test("meet an existing header, and make a new one of the whole rest of the name", () => {
    const config = loadWith("destinations: { orders: { baseUrl: http://h, headers: { X-Tenant: a } } }\n", {
      env: { SVC_DESTINATIONS_ORDERS_HEADERS_X_TENANT: "b", SVC_DESTINATIONS_ORDERS_HEADERS_TRACE: "c" },
    });
    expect(config.destinations.orders?.headers).toEqual({ "X-Tenant": "b", trace: "c" });
  });
});

describe("variables for lists", () => {
  test("set keys of an item and add items in order", () => {
    const config = loadWith(`${DESTINATION}routes: [{ topicPattern: a, destination: nowhere }]\n`, {
      env: {
        SVC_ROUTES_0_DESTINATION: "orders",
        SVC_ROUTES_1_DESTINATION: "orders",
        SVC_ROUTES_1_TOPICPATTERN: "**",
        SVC_ROUTES_10_TOPICPATTERN: undefined,
      },
    });
    expect(config.routes).toMatchObject([
      { topicPattern: "a", destination: "orders" },
      { topicPattern: "**", destination: "orders" },
    ]);
  });

  test("a gap is refused", () => {
    expect(problemsOf(DESTINATION, { env: { SVC_ROUTES_2_DESTINATION: "orders" } })).toEqual([
      "SVC_ROUTES_2_DESTINATION: sets item 2 of routes, which has 0: items are counted from 0 without a gap",
    ]);
  });

  test("a list of text takes commas or indexes", () => {
    const yaml = "sources: { k: { bootstrapServers: b, topics: [x, y], groupId: g } }\n";
    const topics = (env: Record<string, string>) => loadWith(yaml, { env }).sources.k;
    expect(topics({ SVC_SOURCES_K_TOPICS: "a, b,c" })).toMatchObject({ topics: ["a", "b", "c"] });
    expect(topics({ SVC_SOURCES_K_TOPICS_1: "z" })).toMatchObject({ topics: ["x", "z"] });
  });
});

describe("variables that set nothing", () => {
  test.each([
    ["SVC_OUTBOX_POLL_INTERVAL_MS", "SVC_OUTBOX_POLLINTERVALMS"],
    ["SVC_OUTBOX_BATCHSIZ", "SVC_OUTBOX_BATCHSIZE"],
    ["SVC_DESTINATIONS_ORDERS_BASE_URL", "SVC_DESTINATIONS_ORDERS_BASEURL"],
    ["SVC_DESTINATIONS_NEW_BASE_URL", "SVC_DESTINATIONS_NEW_BASEURL"],
    ["SVC_ROUTES_0_TOPIC_PATTERN", "SVC_ROUTES_0_TOPICPATTERN"],
  ])("%s is a warning that names %s", (name, nearest) => {
    expect(warningsOf(DESTINATION, { env: { [name]: "1" } })).toEqual([
      `${name}: sets nothing: no configuration key has this name; did you mean "${nearest}"?`,
    ]);
    expect(loadWith(DESTINATION, { env: { [name]: "1" } })).toEqual(loadWith(DESTINATION));
  });

  test.each(["SVC_OUTBOX", "SVC_OUTBOX_BATCHSIZE_", "SVC_ROUTES", "SVC_DESTINATIONS_ORDERS", "SVC_svc_port", "SVC_"])(
    "%s is a warning",
    (name) => {
      expect(warningsOf(DESTINATION, { env: { [name]: "1" } })).toEqual([
        expect.stringContaining(`${name}: sets nothing`),
      ]);
    },
  );

  test("are errors when strict", () => {
    expect(problemsOf("", { env: { SVC_OUTBOX_BATCHSIZ: "1" }, strict: true })).toEqual([
      expect.stringContaining("SVC_OUTBOX_BATCHSIZ: sets nothing"),
    ]);
  });

  test("SVC_CONFIG_FILE is none of them", () => {
    expect(warningsOf("", { env: { SVC_CONFIG_FILE: "other.yml" } })).toEqual([]);
  });
});
