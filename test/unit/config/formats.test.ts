// biome-ignore-all lint/suspicious/noTemplateCurlyInString: these are placeholders of the configuration, not of JavaScript
import { describe, expect, test } from "@jest/globals";
import { substitute } from "../../../src/config/shape.ts";
import { DATABASE, disk, inspect, load, loadWith, problemsOf, warningsOf } from "./support.ts";

describe("values of the file", () => {
  test("a text keeps what is written, whatever YAML would make of it", () => {
    const yaml = DATABASE.replace("s3cret", "0123").replace("username: svc", "username: no");
    const { database } = load(yaml).config;
    expect([database.password.reveal(), database.username]).toEqual(["0123", "no"]);
  });

  test.each(["8081", '"8081"'])("a number is taken from %s", (written) => {
    expect(loadWith(`server: { httpPort: ${written} }\n`).server.httpPort).toBe(8081);
  });

  test.each([
    ["server: { httpPort: 0 }", "server.httpPort: expected a whole number from 1 to 65535, found 0"],
    ["server: { httpPort: 65536 }", "server.httpPort: expected a whole number from 1 to 65535, found 65536"],
    ["server: { httpPort: [1] }", "server.httpPort: expected a single value, found a list"],
    [
      "outbox: { pollIntervalMs: 0 }",
      "outbox.pollIntervalMs: expected a whole number of milliseconds from 1 to 2147483647, found 0",
    ],
    [
      "outbox: { retryBaseDelayMs: -1 }",
      "outbox.retryBaseDelayMs: expected a whole number of milliseconds from 0 to 2147483647, found -1",
    ],
    [
      "outbox: { claimTimeoutMs: 2147483648 }",
      "outbox.claimTimeoutMs: expected a whole number of milliseconds from 0 to 2147483647, found 2147483648",
    ],
    [
      "outbox: { pollIntervalMs: 1s }",
      'outbox.pollIntervalMs: expected a whole number of milliseconds from 1 to 2147483647, found "1s"',
    ],
    ["inbox: { relay: { enabled: yes } }", 'inbox.relay.enabled: expected true or false, found "yes"'],
    ["database: [1]", "database: expected a mapping of keys, found a list"],
    ["routes: { a: b }", "routes: expected a list, found a mapping"],
    ["routes: hunter2", "routes: expected a list, found a single value"],
    ["admin: { auth: hunter2 }", "admin.auth: expected a mapping of keys, found a single value"],
    [
      "outbox: { maxAttempts: 2147483648 }",
      "outbox.maxAttempts: expected a whole number from 1 to 2147483647, found 2147483648",
    ],
    [
      "outbox: { batchSize: 99999999999999999999 }",
      'outbox.batchSize: expected a whole number from 1, found "99999999999999999999"',
    ],
  ])("%s is refused", (yaml, message) => {
    const whole = yaml.startsWith("database") ? inspect(`${yaml}\n`) : inspect(`${DATABASE}${yaml}\n`);
    expect(whole.problems).toEqual([expect.stringContaining(`${message} (svc.yml, line `)]);
  });

  test.each([
    ["30s", 30_000],
    ["5m", 300_000],
    ["1h", 3_600_000],
    ["30d", 2_592_000_000],
    ["0s", 0],
  ])("the duration %s is %d ms", (written, ms) => {
    expect(loadWith(`retention: { inbox: { maxAge: ${written} } }\n`).retention.inbox.maxAge).toBe(ms);
  });

  test.each(["30", "1.5h", "1 h", "1D", "-1d", "h", "1h30m", "P1D"])("%s is no duration", (written) => {
    expect(problemsOf(`retention: { inbox: { maxAge: "${written}" } }\n`)).toEqual([
      expect.stringContaining("retention.inbox.maxAge: expected a whole number and one of the suffixes s, m, h, d"),
    ]);
  });

  test.each([
    ["destinations: { d: { baseUrl: http://h, transform: { expression: a, onError: fail } } }", "onError", "Fail"],
    ["retention: { outbox: { policy: age } }", "policy", "AGE"],
    ["destinations: { d: { url: amqp://h, exchange: e, exchangeType: Topic } }", "exchangeType", "topic"],
    ["sources: { s: { queueName: q, connectionUrl: amqp://h, consumption: PULL } }", "consumption", "pull"],
  ])("%s does not load: letter case counts", (yaml, key, nearest) => {
    expect(problemsOf(`${yaml}\n`)).toEqual([
      expect.stringMatching(new RegExp(`${key}: expected one of .*did you mean "${nearest}"`)),
    ]);
  });

  test.each(["server: { httpPort: 9, httpport: 9 }", "serve: {}", "outbox: { capture: { conection: {} } }"])(
    "%s has an unknown key, which is a warning, and an error when strict",
    (yaml) => {
      expect(problemsOf(`${yaml}\n`)).toEqual([]);
      const [warning, ...others] = warningsOf(`${yaml}\n`);
      expect(others).toEqual([]);
      expect(warning).toMatch(
        /is not a known key and is ignored; did you mean "(httpPort|server|connection)"\? \(svc\.yml, line 5\)/,
      );
      expect(problemsOf(`${yaml}\n`, { strict: true })).toEqual([warning]);
    },
  );

  test("a required key that is misspelt is named beside the right one", () => {
    const { problems } = inspect("database:\n  urll: x\n  username: u\n  password: p\n");
    expect(problems).toEqual([expect.stringMatching(/^database\.url: is required: .* Is "urll" meant to be "url"\?/)]);
  });
});

describe("placeholders", () => {
  const lookup = (name: string) => ({ A: "1", EMPTY: "", "java.io.tmpdir": "/tmp" })[name];

  test.each([
    ["${A}", "1"],
    ["x${A}y${A}", "x1y1"],
    ["${A:-2}", "1"],
    ["${B:-2}", "2"],
    ["${B:-}", ""],
    ["${EMPTY:-2}", "2"],
    ["${EMPTY}", ""],
    ["${B:-${A}}", "1"],
    ["${B:-${C:-x}}z", "xz"],
    ["${A:-${MISSING}}", "1"],
    ["${java.io.tmpdir}", "/tmp"],
    ["$${A}", "${A}"],
    ["$A {A}", "$A {A}"],
  ])("%s becomes %s", (text, expected) => {
    expect(substitute(text, lookup)).toEqual({ text: expected, missing: [], literal: false });
  });

  test.each(['${"id": id}', '$${"id": id}', "${A", "${A:-x", "${}", "${A-B}"])(
    "%s is no placeholder and stays",
    (text) => {
      expect(substitute(text, lookup)).toEqual({ text, missing: [], literal: true });
    },
  );

  test("work for every type", () => {
    const config = loadWith(
      "server: { httpPort: '${PORT:-8090}' }\nhttp: { blockPrivateAddresses: '${BLOCK}' }\nretention: { inbox: { maxAge: '${AGE}d' } }\n",
      { env: { BLOCK: "true", AGE: "2" } },
    );
    expect(config.server.httpPort).toBe(8090);
    expect(config.http.blockPrivateAddresses).toBe(true);
    expect(config.retention.inbox.maxAge).toBe(172_800_000);
  });

  test("a variable that is not set is refused by key path and name, once", () => {
    const yaml = "destinations: { d: { baseUrl: 'http://${HOST}/${HOST}', transform: { expression: '${EXPR}' } } }\n";
    expect(problemsOf(yaml)).toEqual([
      "destinations.d.baseUrl: ${HOST} has no value: set the environment variable HOST, or write a fallback as ${HOST:-fallback} (svc.yml, line 5)",
      "destinations.d.transform.expression: ${EXPR} has no value: set the environment variable EXPR, or write a fallback as ${EXPR:-fallback} (svc.yml, line 5)",
    ]);
  });

  test("a value that a variable replaces needs no placeholder", () => {
    const config = loadWith("server: { httpPort: '${GONE}' }\n", { env: { SVC_SERVER_HTTPPORT: "9" } });
    expect(config.server.httpPort).toBe(9);
  });

  test("text that looks like a placeholder and is none is a warning, except in an expression", () => {
    const yaml = (expression: string, path: string) =>
      `destinations: { d: { baseUrl: http://h, path: '${path}', transform: { expression: '${expression}' } } }\n`;
    expect(warningsOf(yaml('items${"a": id}', "/"))).toEqual([]);
    expect(warningsOf(yaml("a", "/${ORDERS-PATH}"))).toEqual([expect.stringContaining("destinations.d.path: holds")]);
  });
});

describe("secrets from files", () => {
  const yaml = (password: string) => DATABASE.replace("s3cret", password);
  const read = (text: string) =>
    load("", { readFile: disk({ "svc.yml": yaml("file:/run/p"), "/run/p": text }) }).config.database.password.reveal();

  test.each([
    ["abc", "abc"],
    ["abc\n", "abc"],
    ["abc\r\n", "abc"],
    ["abc\n\n", "abc\n"],
    [" abc ", " abc "],
    ["", ""],
  ])("the content %j gives %j", (content, secret) => {
    expect(read(content)).toBe(secret);
  });

  test("a variable and a placeholder can name the file", () => {
    const files = { "svc.yml": yaml("file:${DIR}/p"), "/a/p": "a", "/b/p": "b" };
    const password = (env: Record<string, string>) =>
      load("", { env, readFile: disk(files) }).config.database.password.reveal();
    expect(password({ DIR: "/a" })).toBe("a");
    expect(password({ DIR: "/a", SVC_DATABASE_PASSWORD: "file:/b/p" })).toBe("b");
  });

  test("a file that cannot be read is refused by key path and file", () => {
    expect(inspect(yaml("file:/run/gone")).problems).toEqual([
      expect.stringMatching(
        /^database\.password: cannot read the secret file "\/run\/gone": ENOENT.*\(svc\.yml, line 4\)$/,
      ),
    ]);
  });

  test("file: is literal on fields that are no pure credential, and database.url then fails", () => {
    const { problems } = inspect(DATABASE.replace("jdbc:postgresql://db.internal:5432/svc", "file:/run/url"));
    expect(problems).toEqual([expect.stringMatching(/^database\.url: expected a JDBC URL .*found "file:\/run\/url"/)]);
    const config = loadWith(
      "destinations: { d: { url: file:/a, exchange: e } }\nsources: { s: { queueName: q, connectionUrl: file:/b } }\n",
    );
    expect([config.destinations.d, config.sources.s]).toMatchObject([{ url: "file:/a" }, { connectionUrl: "file:/b" }]);
  });
});
