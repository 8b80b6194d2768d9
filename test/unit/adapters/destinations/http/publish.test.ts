import { describe, expect, test } from "@jest/globals";
import { Secret } from "../../../../../src/model/secret.ts";
import type { Receiver } from "../../../../support/receiver.ts";
import { withReceiver } from "./setup.ts";

let receiver: Receiver;
const destinations = withReceiver((started) => {
  receiver = started;
});

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
    [{ kind: "bearer", token: new Secret("t-1") } as const, "authorization", "Bearer t-1"],
    [{ kind: "api-key", headerName: "X-Api-Key", key: new Secret("k-1") } as const, "x-api-key", "k-1"],
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
