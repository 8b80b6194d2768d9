import { describe, expect, test } from "@jest/globals";
import { Webhook } from "standardwebhooks";
import type { HttpDestinationConfig } from "../../../../../src/adapters/destinations/http/kind.ts";
import { PublishError } from "../../../../../src/model/errors.ts";
import { Secret } from "../../../../../src/model/secret.ts";
import { startBlackHole } from "../../../../support/blackHole.ts";
import type { Receiver } from "../../../../support/receiver.ts";
import { withReceiver } from "./setup.ts";

let receiver: Receiver;
const destinations = withReceiver((started) => {
  receiver = started;
});

/** Waits so long that only the other limits end a batch. */
const BATCH = { maxMessages: 3, maxBytes: 1000, maxWaitMs: 10_000, format: "array" } as const;
const create = (
  batch: Partial<NonNullable<HttpDestinationConfig["batch"]>> = {},
  more: Partial<HttpDestinationConfig> = {},
) => destinations.create({ baseUrl: receiver.url, batch: { ...BATCH, ...batch }, ...more });
const bodies = () => receiver.requests.map(({ body }) => String(body));
/** How a publish ended: undefined, or the code of its error. */
const endOf = (publish: Promise<void>) =>
  publish.then(
    () => undefined,
    (error: unknown) => (error instanceof PublishError ? error.code : error),
  );

describe("a batch", () => {
  test("holds the messages that came meanwhile, as an array or as lines, with the headers that all have", async () => {
    const headers = { "content-type": "text/x", "x-tenant": "blue", "X-Own": "1" };
    const array = create();
    await Promise.all([
      array.publish({ body: '{"n": 1.0}', headers: { ...headers, "x-message-id": "a" } }),
      array.publish({ body: '"text"', headers: { ...headers, "x-message-id": "b", "X-Own": "2" } }),
      array.publish({ body: "[\r\n1\n]", headers }),
    ]);
    expect(bodies()).toEqual(['[{"n": 1.0},"text",[ 1 ]]']);
    expect(receiver.requests[0]?.headers).toMatchObject({ "content-type": "application/json", "x-tenant": "blue" });
    expect(Object.keys(receiver.requests[0]?.headers ?? {})).not.toEqual(
      expect.arrayContaining(["x-own", "x-message-id"]),
    );
    const lines = create({ format: "ndjson", maxMessages: 2 });
    await Promise.all([lines.publish({ body: "[\n1]" }), lines.publish({ body: "2" })]);
    expect(bodies()[1]).toBe("[ 1]\n2\n");
    expect(receiver.requests[1]?.headers["content-type"]).toBe("application/x-ndjson");
  });

  test("is sent when it is full, has its bytes, or has waited", async () => {
    const { publish } = create({ maxMessages: 2 });
    await Promise.all([1, 2, 3, 4].map((n) => publish({ body: String(n) })));
    expect(bodies()).toEqual(["[1,2]", "[3,4]"]);
    const byBytes = create({ maxBytes: 7 });
    await Promise.all(["11", "22", "333", "44", "555555"].map((body) => byBytes.publish({ body })));
    expect(bodies().slice(2)).toEqual(["[11,22]", "[333]", "[44]", "[555555]"]);
    await create({ maxWaitMs: 5 }).publish({ body: "1" });
    expect(bodies().at(-1)).toBe("[1]");
  });

  test("is one for each path, and is an event batch if all are structured events", async () => {
    const { publish } = create({ maxMessages: 2 });
    const headers = { "content-type": "application/cloudevents+json; charset=utf-8" };
    await Promise.all(
      ["/a", "/b", "/a", "/b"].map((address, n) => publish({ address, body: `{"id":"${n}"}`, headers })),
    );
    expect(receiver.requests.map(({ url, body }) => [url, String(body)])).toEqual([
      ["/a", '[{"id":"0"},{"id":"2"}]'],
      ["/b", '[{"id":"1"},{"id":"3"}]'],
    ]);
    expect(receiver.requests[0]?.headers["content-type"]).toBe("application/cloudevents-batch+json; charset=utf-8");
  });

  test("ends each message by its own status in a 207 answer, and all by any other", async () => {
    const { publish } = create({}, { successStatuses: [409], deadStatuses: [422] });
    receiver.answerNext(
      {
        status: 207,
        body: JSON.stringify([{ status: 202 }, { status: 409 }, { status: 422, error: "no such order" }]),
      },
      { status: 207, body: JSON.stringify({ results: [{ status: 503 }, { status: 200 }, { status: 404 }] }) },
      {
        status: 207,
        body: JSON.stringify({ items: [{ status: 200 }, { status: 202 }, { status: 400, body: { error: "no key" } }] }),
      },
      { status: 503 },
      { status: 202, body: "[]" },
    );
    const round = () =>
      Promise.all([1, 2, 3].map((n) => publish({ body: String(n) }).catch((error: unknown) => error)));
    const [sent, there, refused] = await round();
    expect([sent, there]).toEqual([undefined, undefined]);
    expect(refused).toMatchObject({ code: "status_4xx", status: "422", isPermanent: true });
    expect((refused as Error).message).toMatch(/was answered 422 for this message of a batch: no such order$/);
    expect(await round()).toMatchObject([
      { code: "status_5xx", isPermanent: false },
      undefined,
      { code: "status_4xx" },
    ]);
    expect(await round()).toMatchObject([undefined, undefined, { message: expect.stringMatching(/400.*: no key$/) }]);
    expect(await round()).toMatchObject([{ code: "status_5xx" }, { code: "status_5xx" }, { code: "status_5xx" }]);
    expect(await round()).toEqual([undefined, undefined, undefined]);
  });

  test.each([400, 413, 422, 410])(
    "that is refused with %d is halved until the refused message is alone",
    async (status) => {
      receiver.answer = ({ body }, response) => {
        response.statusCode = String(body).includes("5") ? status : 200;
        response.end();
      };
      const { publish } = create({ maxMessages: 8 }, { deadStatuses: [410, 422] });
      const ends = await Promise.all([1, 2, 3, 4, 5, 6, 7, 8].map((n) => endOf(publish({ body: String(n) }))));
      expect(ends).toEqual([1, 2, 3, 4, 5, 6, 7, 8].map((n) => (n === 5 ? "status_4xx" : undefined)));
      expect(bodies()).toHaveLength(7);
    },
  );

  test.each([401, 404, 429, 500])(
    "that is refused with %d, which is not about its messages, is one request",
    async (status) => {
      receiver.answer = { status };
      const { publish } = create({ maxMessages: 3 });
      const ends = await Promise.all([1, 2, 3].map((n) => endOf(publish({ body: String(n) }))));
      expect(new Set(ends).size).toBe(1);
      expect(bodies()).toHaveLength(1);
    },
  );

  test.each([
    ["no JSON", "<html>"],
    ["too few", '[{"status":200},{"status":200}]'],
    ["no status", '[{"status":200},{"status":200},{"status":"200"}]'],
    ["a status that is none", '[{"status":200},{"status":200},{"status":999}]'],
    ["null", "null"],
    ["too much", "x".repeat(5_000_000)],
  ])("whose 207 answer has %s fails whole: what became of its messages is not known", async (_, body) => {
    receiver.answer = { status: 207, body };
    const { publish } = create();
    const ends = await Promise.all([1, 2, 3].map((n) => endOf(publish({ body: String(n) }))));
    expect(ends).toEqual(["bad_response", "bad_response", "bad_response"]);
  });

  test("refuses a body that is no JSON at once, and for good", async () => {
    const { failure, publish } = create({ maxMessages: 1 });
    expect(await failure({ body: "{" })).toMatchObject({ code: "message_invalid", isPermanent: true });
    await publish({ body: "1" });
    expect(bodies()).toEqual(["[1]"]);
  });

  test("continues without a message that was given up, and ends with the last one", async () => {
    const { publish } = create();
    const first = new AbortController();
    const gone = endOf(publish({ body: "1" }, first.signal));
    first.abort("stop");
    expect(await gone).toBe("stop");
    await Promise.all([publish({ body: "2" }), publish({ body: "3" })]);
    expect(bodies()).toEqual(["[2,3]"]);

    const hole = await startBlackHole();
    const away = destinations.create({ baseUrl: `http://127.0.0.1:${hole.port}`, batch: { ...BATCH, maxMessages: 2 } });
    const ends = [new AbortController(), new AbortController()].map((own, n) => {
      const end = endOf(away.publish({ body: String(n) }, own.signal));
      setImmediate(() => own.abort(`stop ${n}`));
      return end;
    });
    expect(await Promise.all(ends)).toEqual(["stop 0", "stop 1"]);
    await hole.close();
  });

  test("ends with the destination, sent or not", async () => {
    const { publish, destination } = create();
    const end = endOf(publish({ body: "1" }));
    await destination.close();
    expect(await end).toBe("closed");
  });

  test("that times out fails each of its messages", async () => {
    const hole = await startBlackHole();
    const { publish } = destinations.create({
      baseUrl: `http://127.0.0.1:${hole.port}`,
      timeoutMs: 50,
      batch: { ...BATCH, maxMessages: 2 },
    });
    expect(await Promise.all([endOf(publish({ body: "1" })), endOf(publish({ body: "2" }))])).toEqual([
      "timeout",
      "timeout",
    ]);
    await hole.close();
  });

  test("is signed as a whole, under an id of its own", async () => {
    const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const signing = {
      scheme: "standard-webhooks",
      secrets: [new Secret(secret)],
      headerName: "X-Signature",
      algorithm: "HmacSHA256",
      signaturePrefix: "sha256=",
    } as const;
    const clock = { now: () => Date.now(), monotonic: () => performance.now() };
    const { publish } = destinations.create(
      { baseUrl: receiver.url, batch: { ...BATCH, maxMessages: 2 }, signing },
      { clock },
    );
    await Promise.all([publish({ body: "1" }), publish({ body: "2" })]);
    await Promise.all([publish({ body: "1" }), publish({ body: "2" })]);
    const ids = receiver.requests.map(({ headers, body }) => {
      new Webhook(secret).verify(String(body), headers as Record<string, string>);
      return headers["webhook-id"];
    });
    expect(new Set(ids).size).toBe(2);
  });
});
