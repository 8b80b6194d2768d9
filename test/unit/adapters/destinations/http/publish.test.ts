import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import { requestUrl } from "../../../../../src/adapters/destinations/http/request.ts";
import { errorText, PublishError, StoppingError } from "../../../../../src/model/errors.ts";
import { Secret } from "../../../../../src/model/secret.ts";
import { startBlackHole } from "../../../../support/blackHole.ts";
import { eventually } from "../../../../support/eventually.ts";
import { failOnLeaks } from "../../../../support/leaks.ts";
import { Receiver } from "../../../../support/receiver.ts";
import { Destinations } from "./setup.ts";

const destinations = new Destinations();
let receiver: Receiver;

beforeEach(async () => {
  receiver = await Receiver.start();
});
afterEach(async () => {
  await destinations.close();
  await receiver.close();
});
failOnLeaks();

describe("a request", () => {
  test("is a POST of the body to baseUrl and path, with the headers of the message", async () => {
    const { publish } = destinations.create({ baseUrl: `${receiver.url}/api/`, path: "/hook?a=1" });
    await publish({ body: '{"x": 1.0}', headers: { "content-type": "application/json", "X-Size": "ü" } });
    const [request] = await receiver.received(1);
    expect(request).toMatchObject({ method: "POST", url: "/api/hook?a=1" });
    expect(request?.body.toString()).toBe('{"x": 1.0}');
    expect(request?.headers).toMatchObject({ "content-type": "application/json", "content-length": "10" });
    expect(request?.rawHeaders).toContain("X-Size");
    expect(Buffer.from(String(request?.headers["x-size"]), "latin1").toString()).toBe("ü");
  });

  test("has the configured method, and the path that was rendered for the message", async () => {
    const { publish, failure } = destinations.create({ baseUrl: `${receiver.url}/api?v=1`, path: "/o", method: "PUT" });
    await publish({ address: null });
    await publish({ address: "/orders/k%2F1?x=%26" });
    receiver.answer = { status: 500 };
    expect((await failure()).message).toMatch(/^PUT http/);
    const requests = await receiver.received(3);
    expect(requests.map(({ method, url }) => [method, url])).toEqual([
      ["PUT", "/api/o?v=1"],
      ["PUT", "/api/orders/k%2F1?v=1&x=%26"],
      ["PUT", "/api/o?v=1"],
    ]);
  });

  test("completes with a further success status, and is not repeated after a dead one", async () => {
    const { publish, failure, calls } = destinations.create({
      baseUrl: receiver.url,
      successStatuses: [409, 304],
      deadStatuses: [410, 503],
    });
    receiver.answerNext({ status: 409, body: "there already" }, { status: 304 }, { status: 410 }, { status: 503 });
    await publish();
    await publish();
    expect(await failure()).toMatchObject({ code: "status_4xx", status: "410", isPermanent: true });
    expect(await failure()).toMatchObject({ code: "status_5xx", isPermanent: true });
    receiver.answer = { status: 404 };
    expect(await failure()).toMatchObject({ code: "status_4xx", isPermanent: false });
    expect(calls).toEqual(["4xx", "3xx", "4xx", "5xx", "4xx"].map((status) => `httpPublishResponse(${status})`));
  });

  test("with an empty body says so", async () => {
    await destinations.create({ baseUrl: receiver.url }).publish({ body: "" });
    const [request] = await receiver.received(1);
    expect(request?.headers["content-length"]).toBe("0");
  });

  test("is framed by the client, whatever headers the row has", async () => {
    const { publish } = destinations.create({ baseUrl: receiver.url });
    await publish({
      body: "1234",
      headers: {
        "Content-Length": "2",
        "Transfer-Encoding": "chunked",
        Connection: "close",
        Host: "evil.example",
        Expect: "100-continue",
      },
    });
    const [request] = await receiver.received(1);
    expect(request?.body.toString()).toBe("1234");
    expect(request?.headers).toMatchObject({
      "content-length": "4",
      connection: "keep-alive",
      host: `127.0.0.1:${receiver.port}`,
    });
  });

  test("with a header that would inject another one sends it encoded", async () => {
    const { publish } = destinations.create({ baseUrl: receiver.url });
    await publish({ headers: { "x-a": "1\r\nx-injected: 1", "x-idempotency-key": "k\u0001" } });
    const [request] = await receiver.received(1);
    expect(request?.headers).toMatchObject({
      "x-a": "UTF-8''1%0D%0Ax-injected%3A%201",
      "x-idempotency-key": "UTF-8''k%01",
    });
    expect(request?.headers).not.toHaveProperty("x-injected");
  });

  test.each([
    [
      { kind: "basic", username: "üser", password: new Secret("päss:1") } as const,
      "authorization",
      `Basic ${Buffer.from("üser:päss:1").toString("base64")}`,
    ],
    [{ kind: "header", headerName: "X-Api-Key", headerValue: new Secret("k-1") } as const, "x-api-key", "k-1"],
    [
      { kind: "header", headerName: "Authorization", headerValue: new Secret("Custom k") } as const,
      "authorization",
      "Custom k",
    ],
  ])("shows its credentials", async (auth, name, value) => {
    const { publish } = destinations.create({ baseUrl: receiver.url, auth });
    await publish({ headers: { Authorization: "of the row", "x-api-key": "of the row" } });
    const [request] = await receiver.received(1);
    expect(request?.headers[name]).toBe(value);
  });

  test("with credentials that cannot go over HTTP is refused at once, without showing them", () => {
    const auth = { kind: "header", headerName: "X-Key", headerValue: new Secret("line1\nline2") } as const;
    const create = () => destinations.create({ baseUrl: receiver.url, auth });
    expect(create).toThrow("control character U+000A");
    expect(create).not.toThrow("line1");
  });
});

describe("an answer", () => {
  test.each([200, 201, 202, 204, 299])("%d completes the publish", async (status) => {
    receiver.answer = { status };
    const { publish, calls } = destinations.create({ baseUrl: receiver.url });
    await publish();
    expect(calls).toEqual(["httpPublishResponse(2xx)"]);
  });

  test.each([301, 302, 303, 307, 308, 304])("%d fails it and is not followed", async (status) => {
    receiver.answer = { status, headers: { location: `${receiver.url}/elsewhere` } };
    const { failure, calls } = destinations.create({ baseUrl: receiver.url });
    const error = await failure();
    expect(error).toBeInstanceOf(PublishError);
    expect(error).toMatchObject({ code: "status_3xx" });
    expect(error.message).toContain(`was answered ${status}, a redirect, and none is followed`);
    expect(receiver.requests).toHaveLength(1);
    expect(calls).toEqual(["httpPublishResponse(3xx)"]);
  });

  test.each([
    [400, "status_4xx", "4xx"],
    [401, "status_4xx", "4xx"],
    [404, "status_4xx", "4xx"],
    [500, "status_5xx", "5xx"],
    [599, "status_5xx", "5xx"],
  ])("%d fails it with the status and the body", async (status, code, statusClass) => {
    receiver.answer = { status, body: "no such order: Grüße" };
    const { failure, calls } = destinations.create({ baseUrl: receiver.url, path: "/hook" });
    expect(await failure()).toMatchObject({
      code,
      message: `POST ${receiver.url}/hook was answered ${status}: no such order: Grüße`,
      retryAfterMs: undefined,
    });
    expect(calls).toEqual([`httpPublishResponse(${statusClass})`]);
  });

  test("without a body fails with the status alone", async () => {
    receiver.answer = { status: 503 };
    const { failure } = destinations.create({ baseUrl: receiver.url });
    expect((await failure()).message).toBe(`POST ${receiver.url}/ was answered 503`);
  });

  test.each([
    [429, 7000],
    [503, 7000],
    [500, undefined],
    [404, undefined],
  ])("%d with Retry-After asks for %s ms", async (status, retryAfterMs) => {
    receiver.answer = { status, headers: { "retry-after": "7" } };
    const { failure } = destinations.create({ baseUrl: receiver.url });
    expect((await failure()).retryAfterMs).toBe(retryAfterMs);
  });

  test("with an informational answer before it counts only once", async () => {
    receiver.answer = (_request, response) => {
      response.writeProcessing();
      response.writeHead(200).end();
    };
    const { publish, calls } = destinations.create({ baseUrl: receiver.url });
    await publish();
    expect(calls).toEqual(["httpPublishResponse(2xx)"]);
  });

  test("leaves its connection for the next publish, with a body or without", async () => {
    receiver.answerNext(
      { status: 200, body: "x".repeat(50_000) },
      { status: 500, body: "y".repeat(50_000) },
      { status: 204 },
    );
    const { publish, failure } = destinations.create({ baseUrl: receiver.url }, { connections: 1 });
    await publish();
    await failure();
    await publish();
    expect(receiver.connections).toBe(1);
  });

  test("2xx completes the publish although its body never ends, and the connection is given up", async () => {
    const ended = new Promise<void>((resolve) => {
      receiver.answerNext((_request, response) => {
        response.writeHead(200);
        const more = () => {
          while (!response.destroyed && response.write("x".repeat(65_536)));
        };
        response.on("drain", more).on("close", resolve);
        more();
      });
    });
    const { publish } = destinations.create({ baseUrl: receiver.url });
    await publish();
    await ended;
    await publish();
    expect(receiver.connections).toBe(2);
  });

  test("2xx completes the publish although its body breaks off", async () => {
    receiver.answerNext((_request, response) => {
      response.writeHead(200, { "content-length": "100" });
      response.write("half", () => response.destroy());
    });
    const { publish } = destinations.create({ baseUrl: receiver.url });
    await publish();
    await publish();
    expect(receiver.connections).toBe(2);
  });

  test("that fails and never ends is cut off at the kept bytes, and the connection is given up", async () => {
    const ended = new Promise<void>((resolve) => {
      receiver.answerNext((_request, response) => {
        response.writeHead(500);
        const more = () => {
          while (!response.destroyed && response.write("x".repeat(1000)));
        };
        response.on("drain", more).on("close", resolve);
        more();
      });
    });
    const { failure } = destinations.create({ baseUrl: receiver.url }, { maxErrorBodyBytes: 100 });
    expect((await failure()).message).toBe(`POST ${receiver.url}/ was answered 500: ${"x".repeat(100)}…`);
    await ended;
  });

  test("that fails and stalls in its body fails with its status when the time is over", async () => {
    receiver.answer = (_request, response) => {
      response.writeHead(422);
      response.write("half a");
    };
    const { failure } = destinations.create({ baseUrl: receiver.url, timeoutMs: 100 });
    expect(await failure()).toMatchObject({ code: "status_4xx", message: expect.stringContaining("422: half a") });
  });

  test("2xx whose body stalls completes the publish, and the connection is given up when the time is over", async () => {
    const ended = new Promise<void>((resolve) => {
      receiver.answerNext((_request, response) => {
        response.writeHead(200);
        response.write("half");
        response.on("close", resolve);
      });
    });
    const { publish } = destinations.create({ baseUrl: receiver.url, timeoutMs: 100 });
    await publish();
    await ended;
  });

  test.each([
    [200, 10_000],
    [200, 0],
    [500, 10_000],
    [500, 0],
  ])(
    "%d whose body drips long after the publish has ended gives its connection to the next one, with timeoutMs %d",
    async (status, timeoutMs) => {
      receiver.answer = (_request, response) => drip(response.writeHead(status), "x".repeat(200));
      const { publish } = destinations.create(
        { baseUrl: receiver.url, timeoutMs },
        { connections: 1, maxErrorBodyBytes: 100 },
      );
      const outcomes = await Promise.allSettled([publish(), publish(), publish()]);
      const codes = outcomes.map((outcome) => (outcome.status === "rejected" ? outcome.reason.code : "none"));
      // Waiting for the one connection would come to "timeout".
      expect(new Set(codes)).toEqual(new Set([status === 200 ? "none" : "status_5xx"]));
      expect(receiver.connections).toBe(3);
    },
  );

  test.each([10_000, 100])("2xx is told of, whole or cut off, with timeoutMs %d", async (timeoutMs) => {
    const told: boolean[] = [];
    const { publish } = destinations.create(
      { baseUrl: receiver.url, timeoutMs },
      { onAnswerEnd: (isWhole) => told.push(isWhole) },
    );
    receiver.answerNext((_request, response) => drip(response.writeHead(200), "x"));
    await publish();
    await eventually(() => told.length === 1);
    await publish();
    await eventually(() => told.length === 2);
    expect(told).toEqual([false, true]);
  });

  test.each(["content-length", "chunked"])(
    "whose body comes after the publish has ended leaves its connection (%s)",
    async (framing) => {
      const answers: ServerResponse[] = [];
      receiver.answer = (_request, response) => {
        response.writeHead(200, framing === "chunked" ? {} : { "content-length": "4" });
        response.flushHeaders();
        answers.push(response);
      };
      const { publish } = destinations.create({ baseUrl: receiver.url }, { connections: 1 });
      for (let n = 0; n < 12; n++) {
        await publish();
        answers[n]?.end("late");
      }
      expect(answers).toHaveLength(12);
      expect(receiver.connections).toBe(1);
    },
  );
});

describe.each([102, 103])("informational answers (%d) without an end", (status) => {
  const informational = `HTTP/1.1 ${status} Wait\r\nlink: </style.css>; rel=preload\r\n\r\n`;
  let ended: Promise<unknown>;
  beforeEach(() => {
    ended = new Promise((resolve) => {
      receiver.answer = (_request, { socket }) => {
        const timer = setInterval(() => socket?.write(informational), 10);
        socket?.on("close", () => resolve(clearInterval(timer)));
      };
    });
  });

  test("are no answer: the time limit ends the publish and its connection", async () => {
    const { failure, calls } = destinations.create({ baseUrl: receiver.url, timeoutMs: 600 }, { connections: 1 });
    expect(await failure()).toMatchObject({
      code: "timeout",
      message: expect.stringContaining("took longer than 600 ms, waiting for the answer"),
    });
    expect(calls).toEqual(["httpPublishResponse(error)"]);
    await ended;
  });

  test("fail the publish and end its connection after a thousand", async () => {
    const closed = new Promise<void>((resolve) => {
      receiver.answer = (_request, { socket }) => {
        socket?.on("close", () => resolve());
        socket?.on("error", () => {});
        socket?.write(informational.repeat(1001));
      };
    });
    const { failure } = destinations.create({ baseUrl: receiver.url, timeoutMs: 0 });
    expect(await failure()).toMatchObject({
      code: "bad_response",
      message: expect.stringContaining("was answered more than 1000 times with 1xx"),
    });
    await closed;
  });

  test("without a time limit last until the publish is aborted", async () => {
    const { publish } = destinations.create({ baseUrl: receiver.url, timeoutMs: 0 });
    const controller = new AbortController();
    const published = publish({}, controller.signal);
    const reason = new StoppingError();
    await receiver.received(1);
    controller.abort(reason);
    await expect(published).rejects.toBe(reason);
    await ended;
  });
});

describe("the kept part of an error body", () => {
  const reason = async (body: string, maxErrorBodyBytes: number, password = "unused-password") => {
    receiver.answer = { status: 400, body };
    const auth = { kind: "basic", username: "u", password: new Secret(password) } as const;
    const { failure } = destinations.create({ baseUrl: receiver.url, auth }, { maxErrorBodyBytes });
    return (await failure()).message.replace(`POST ${receiver.url}/ was answered 400`, "");
  };

  test("is the whole body when it is short enough", async () => {
    expect(await reason("x".repeat(10), 10)).toBe(`: ${"x".repeat(10)}`);
  });

  test("is cut at a character, not at a byte", async () => {
    expect(await reason("ab€€", 4)).toBe(": ab…");
    expect(await reason("ab€€", 5)).toBe(": ab€…");
  });

  test("is nothing when nothing is to be kept", async () => {
    expect(await reason("secret", 0)).toBe("");
  });

  test("holds no credential, also not the half of one at its end", async () => {
    const password = "correct-horse-battery";
    const encoded = Buffer.from(`u:${password}`).toString("base64");
    expect(await reason(`bad ${password} in ${encoded}`, 2048, password)).toBe(": bad *** in ***");
    for (let kept = 4; kept < 60; kept++) {
      const text = await reason(`bad ${password}${password} ${"x".repeat(100)}`, kept, password);
      expect(text).toMatch(/^: [bad *x]*…$/);
    }
  });
});

describe("a fault", () => {
  test("of a port on which nobody listens is connection_refused", async () => {
    await receiver.close();
    const { failure, calls } = destinations.create({ baseUrl: receiver.url });
    const error = await failure();
    expect(error.code).toBe("connection_refused");
    expect(errorText(error)).toContain("ECONNREFUSED");
    expect(calls).toEqual(["httpPublishResponse(error)"]);
  });

  test("of a host without an address is dns", async () => {
    const lookup = (_host: string, _options: object, callback: (error: NodeJS.ErrnoException, addresses: []) => void) =>
      callback(Object.assign(new Error("getaddrinfo ENOTFOUND nowhere.example"), { code: "ENOTFOUND" }), []);
    const { failure } = destinations.create({ baseUrl: "http://nowhere.example" }, { lookup });
    expect((await failure()).code).toBe("dns");
  });

  test("of a server without TLS is tls", async () => {
    const { failure } = destinations.create({ baseUrl: receiver.url.replace("http:", "https:") });
    expect((await failure()).code).toBe("tls");
  });

  test("of a connection that breaks before the answer is connection_lost, and is not repeated", async () => {
    receiver.answer = "drop";
    const { failure } = destinations.create({ baseUrl: receiver.url });
    expect(await failure()).toMatchObject({
      code: "connection_lost",
      message: expect.stringContaining("waiting for the answer"),
    });
    expect(receiver.requests).toHaveLength(1);
  });

  test("of an answer that is no HTTP is bad_response", async () => {
    receiver.answer = (_request, response) => {
      response.socket?.end("SSH-2.0-OpenSSH\r\n\r\n");
    };
    const { failure } = destinations.create({ baseUrl: receiver.url });
    expect((await failure()).code).toBe("bad_response");
  });
});

describe("the time limit", () => {
  test("covers a receiver that never answers, and closes the connection", async () => {
    await using blackHole = await startBlackHole();
    const { failure } = destinations.create({ baseUrl: `http://127.0.0.1:${blackHole.port}`, timeoutMs: 60 });
    const started = performance.now();
    expect(await failure()).toMatchObject({
      code: "timeout",
      message: expect.stringContaining("took longer than 60 ms, waiting for the answer"),
    });
    expect(performance.now() - started).toBeGreaterThanOrEqual(59);
    await eventually(() => blackHole.givenUp === 1);
  });

  test("covers the wait for a connection, and what waited in vain is not sent", async () => {
    receiver.answerNext({ status: 200, after: new Promise(() => {}) });
    const { publish } = destinations.create({ baseUrl: receiver.url, timeoutMs: 1500 }, { connections: 1 });
    const published = Promise.allSettled([publish({ body: "first" }), publish({ body: "second" })]);
    await receiver.received(1);
    // The time of both is over at once: with a moment between them the second one could still use the connection that the first one lets go.
    for (const until = performance.now() + 1520; performance.now() < until; );
    const outcomes = await published;
    expect(outcomes.map((outcome) => outcome.status === "rejected" && outcome.reason.message)).toEqual([
      expect.stringContaining("took longer than 1500 ms, waiting for the answer"),
      expect.stringContaining("took longer than 1500 ms, waiting for a connection"),
    ]);
    // Requests go out in order, so the second one would be there before the third.
    await publish({ body: "third" });
    expect(receiver.requests.map(({ body }) => body.toString())).toEqual(["first", "third"]);
  });

  test("of many publishes ends each at its own time", async () => {
    await using blackHole = await startBlackHole();
    const { failure } = destinations.create({ baseUrl: `http://127.0.0.1:${blackHole.port}`, timeoutMs: 100 });
    const timed = async () => {
      const started = performance.now();
      expect((await failure()).code).toBe("timeout");
      return performance.now() - started;
    };
    const all: Promise<number>[] = [];
    for (let n = 0; n < 5; n++) {
      all.push(timed());
      await new Promise((resolve) => setTimeout(resolve, 15));
    }
    for (const ms of await Promise.all(all)) expect(ms).toBeGreaterThanOrEqual(99);
  });

  test("of 0 is none", async () => {
    let release = () => {};
    receiver.answerNext({
      status: 200,
      after: new Promise<void>((resolve) => {
        release = resolve;
      }),
    });
    const { publish } = destinations.create({ baseUrl: receiver.url, timeoutMs: 0 });
    const published = publish();
    await receiver.received(1);
    release();
    await published;
  });
});

describe("an abort", () => {
  test("ends the request and closes its connection", async () => {
    await using blackHole = await startBlackHole();
    const { publish } = destinations.create({ baseUrl: `http://127.0.0.1:${blackHole.port}` });
    const controller = new AbortController();
    const reason = new StoppingError();
    const published = publish({}, controller.signal);
    await blackHole.reached;
    controller.abort(reason);
    await expect(published).rejects.toBe(reason);
    await eventually(() => blackHole.givenUp === 1);
  });

  test("ends only the publishes of its signal", async () => {
    let release = () => {};
    const after = new Promise<void>((resolve) => {
      release = resolve;
    });
    receiver.answer = { status: 200, after };
    const { publish } = destinations.create({ baseUrl: receiver.url });
    const controller = new AbortController();
    const aborted = [publish({}, controller.signal), publish({}, controller.signal)].map((each) =>
      expect(each).rejects.toThrow("stop"),
    );
    const kept = publish();
    await receiver.received(3);
    controller.abort(new StoppingError("stop"));
    await Promise.all(aborted);
    release();
    await kept;
  });

  test("of a signal that many publishes share makes no warning of a leak", async () => {
    const warnings: Error[] = [];
    const listener = (warning: Error) => warnings.push(warning);
    process.on("warning", listener);
    try {
      const { publish } = destinations.create({ baseUrl: receiver.url });
      const { signal } = new AbortController();
      await Promise.all(Array.from({ length: 40 }, () => publish({}, signal)));
      await new Promise((resolve) => setImmediate(resolve));
      expect(warnings).toEqual([]);
    } finally {
      process.off("warning", listener);
    }
  });

  test("after the answer changes nothing", async () => {
    const { publish } = destinations.create({ baseUrl: receiver.url });
    const controller = new AbortController();
    await publish({}, controller.signal);
    controller.abort(new StoppingError());
    await publish();
  });
});

describe("addresses", () => {
  test("that are private are refused at the connect: literal ones", async () => {
    const { failure } = destinations.create({ baseUrl: receiver.url }, { blockPrivateAddresses: true });
    const error = await failure();
    expect(error.code).toBe("private_address");
    expect(error.message).toContain("127.0.0.1 is a private address (loopback)");
    expect(receiver.connections).toBe(0);
  });

  test("that are private are refused at the connect: names whose answer has changed since the start", async () => {
    let answers = ["203.0.113.1"];
    const { failure } = destinations.create(
      { baseUrl: `http://rebound.example:${receiver.port}` },
      {
        blockPrivateAddresses: true,
        lookup: (_host, _options, callback) =>
          callback(
            null,
            answers.map((address) => ({ address, family: 4 })),
          ),
      },
    );
    answers = ["127.0.0.1"];
    expect(await failure()).toMatchObject({
      code: "private_address",
      message: expect.stringContaining("rebound.example"),
    });
    expect(receiver.connections).toBe(0);
  });

  test("of cloud metadata are refused without the block too", async () => {
    const { failure } = destinations.create(
      { baseUrl: "http://metadata.example" },
      { lookup: (_host, _options, callback) => callback(null, [{ address: "169.254.169.254", family: 4 }]) },
    );
    expect((await failure()).message).toContain("cloud metadata address");
  });

  test("that are permitted are connected to by name", async () => {
    const { publish } = destinations.create(
      { baseUrl: `http://shop.example:${receiver.port}` },
      { lookup: (_host, _options, callback) => callback(null, [{ address: "127.0.0.1", family: 4 }]) },
    );
    await publish();
    const [request] = await receiver.received(1);
    expect(request?.headers.host).toBe(`shop.example:${receiver.port}`);
  });
});

test("connections are bounded, and further publishes wait for one", async () => {
  const { publish } = destinations.create({ baseUrl: receiver.url }, { connections: 3 });
  await Promise.all(Array.from({ length: 30 }, () => publish()));
  expect(receiver.requests).toHaveLength(30);
  expect(receiver.connections).toBeLessThanOrEqual(3);
});

test("a receiver that closes idle connections costs no publish", async () => {
  const { publish } = destinations.create({ baseUrl: receiver.url }, { connections: 1 });
  for (let n = 0; n < 5; n++) {
    let closed: Promise<unknown> = Promise.resolve();
    receiver.answerNext((_request, response) => {
      const { socket } = response;
      if (socket !== null) closed = once(socket, "close");
      response.end(() => socket?.end());
    });
    await publish();
    await closed;
  }
  expect(receiver.connections).toBe(5);
});

/** Sends a beginning at once, and the rest a byte at a time, without an end. */
function drip(response: ServerResponse, beginning: string): void {
  response.write(beginning);
  const timer = setInterval(() => response.write("."), 20);
  response.once("close", () => clearInterval(timer));
}

describe("the URL of the request", () => {
  test.each([
    ["http://h", "/", "http://h/"],
    ["http://h/", "/", "http://h/"],
    ["http://h", "/a/b", "http://h/a/b"],
    ["http://h/", "a", "http://h/a"],
    ["http://h/base", "/", "http://h/base"],
    ["http://h/base/", "/", "http://h/base/"],
    ["http://h/base", "/a/", "http://h/base/a/"],
    ["http://h/base/", "/a", "http://h/base/a"],
    ["http://h/base?k=v", "/", "http://h/base?k=v"],
    ["http://h/base?k=v", "/a?x=1?2", "http://h/base/a?k=v&x=1?2"],
    ["http://h/base#part", "/a b#c", "http://h/base/a%20b%23c"],
    ["https://h:8443", "", "https://h:8443/"],
  ])("of %s and %s is %s", (baseUrl, path, url) => {
    expect(requestUrl(baseUrl, path).href).toBe(url);
  });
});
