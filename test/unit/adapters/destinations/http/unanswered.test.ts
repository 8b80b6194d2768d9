import { describe, expect, test } from "@jest/globals";
import { errorText, StoppingError } from "../../../../../src/model/errors.ts";
import { startBlackHole } from "../../../../support/blackHole.ts";
import { eventually } from "../../../../support/eventually.ts";
import type { Receiver } from "../../../../support/receiver.ts";
import { withReceiver } from "./setup.ts";

let receiver: Receiver;
const destinations = withReceiver((started) => {
  receiver = started;
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

  test("covers the wait for a connection, and a message that got none in time is not sent", async () => {
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
});
