import type { ServerResponse } from "node:http";
import { beforeEach, describe, expect, test } from "@jest/globals";
import { PublishError } from "../../../../../src/model/errors.ts";
import { Secret } from "../../../../../src/model/secret.ts";
import type { Receiver } from "../../../../support/receiver.ts";
import { withReceiver } from "./setup.ts";

let receiver: Receiver;
const destinations = withReceiver((started) => {
  receiver = started;
});

/** Sends a beginning at once, and the rest a byte at a time, without an end. */
function drip(response: ServerResponse, beginning: string): void {
  response.write(beginning);
  const timer = setInterval(() => response.write("."), 20);
  response.once("close", () => clearInterval(timer));
}

/** The next answer repeats a part without an end. @returns its connection has been given up */
const answerEndlessly = (status: number, part: string) =>
  new Promise<void>((resolve) => {
    receiver.answerNext((_request, response) => {
      response.writeHead(status);
      const more = () => {
        while (!response.destroyed && response.write(part));
      };
      response.on("drain", more).on("close", resolve);
      more();
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
    expect(error.message).toContain(
      `was answered ${status}, a redirect, which is not followed: set baseUrl to its Location`,
    );
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
    const ended = answerEndlessly(200, "x".repeat(65_536));
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
    const ended = answerEndlessly(500, "x".repeat(1000));
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

  test.each([200, 500])("%d whose body drips without an end counts when the time is over", async (status) => {
    receiver.answerNext((_request, response) => drip(response.writeHead(status), "x".repeat(200)));
    const { publish } = destinations.create({ baseUrl: receiver.url, timeoutMs: 300 }, { connections: 1 });
    const [first] = await Promise.allSettled([publish()]);
    expect(first?.status === "rejected" && first.reason.code).toBe(status === 200 ? false : "status_5xx");
    await publish();
    expect(receiver.connections).toBe(2);
  });
});

describe("informational answers without an end", () => {
  const informational = `HTTP/1.1 103 Wait\r\nlink: </style.css>; rel=preload\r\n\r\n`;
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
