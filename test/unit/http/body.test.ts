import { createHmac } from "node:crypto";
import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync } from "node:zlib";
import { describe, expect, test } from "@jest/globals";
import { BodyBudget } from "../../../src/http/exchange.ts";
import { Secret } from "../../../src/model/secret.ts";
import { eventually } from "../../support/eventually.ts";
import { failOnLeaks } from "../../support/leaks.ts";
import { ManualClock } from "../../support/recorders.ts";
import { postHead, RawClient, seen, startHttp } from "./harness.ts";

const CAP = 100;
const TOO_LARGE = '{"error":"Request body exceeds 100 bytes"}';

/** A JSON body of exactly so many bytes. */
const bodyOf = (bytes: number) => `{"id":"${"x".repeat(bytes - 9)}"}`;
const chunk = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`;

failOnLeaks();

describe("the body cap", () => {
  test("lets a body of exactly the cap pass, with Content-Length and chunked", async () => {
    await using http = await startHttp({ maxBodyBytes: CAP });
    expect((await http.post(bodyOf(CAP))).status).toBe(202);
    using client = new RawClient(http.data.port);
    client.send(postHead(["Transfer-Encoding: chunked"]) + chunk(bodyOf(CAP)) + chunk(""));
    expect(await client.until("duplicate")).toContain("HTTP/1.1 200 OK");
  });

  test("answers 413 to a Content-Length above it without waiting for the body", async () => {
    await using http = await startHttp({ maxBodyBytes: CAP });
    using client = new RawClient(http.data.port);
    client.send(postHead([`Content-Length: ${CAP + 1}`]));
    expect(await client.until(TOO_LARGE)).toContain("HTTP/1.1 413 Payload Too Large");
  });

  test("answers 413 to a chunked body when the bytes that came pass it", async () => {
    await using http = await startHttp({ maxBodyBytes: CAP });
    using client = new RawClient(http.data.port);
    client.send(postHead(["Transfer-Encoding: chunked"]) + chunk(bodyOf(60)) + chunk(bodyOf(41)));
    expect(await client.until(TOO_LARGE)).toContain("HTTP/1.1 413 Payload Too Large");
    expect(http.store.rows).toEqual([]);
  });

  test("holds for every path and method of the data port", async () => {
    await using http = await startHttp({ maxBodyBytes: CAP });
    for (const request of ["GET / ", "POST /nowhere ", "PUT /inbox/orders "]) {
      using client = new RawClient(http.data.port);
      client.send(`${request}HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${CAP + 1}\r\n\r\n`);
      expect(await client.until(TOO_LARGE)).toContain("HTTP/1.1 413");
    }
  });

  test("cuts off a sender that sends without end", async () => {
    await using http = await startHttp({ maxBodyBytes: CAP });
    using client = new RawClient(http.data.port);
    client.send(postHead(["Transfer-Encoding: chunked"]));
    const endless = setInterval(() => client.send(chunk("x".repeat(1000))), 10);
    await client.until(TOO_LARGE);
    await client.closed;
    clearInterval(endless);
  });
});

describe("a sender that waits for 100 Continue", () => {
  const expectContinue = (length: number) => postHead([`Content-Length: ${length}`, "Expect: 100-continue"]);

  test("gets it, and then its answer", async () => {
    await using http = await startHttp({ maxBodyBytes: CAP });
    using client = new RawClient(http.data.port);
    client.send(expectContinue(8));
    await client.until("HTTP/1.1 100 Continue\r\n\r\n");
    client.send('{"id":1}');
    await client.until("HTTP/1.1 202 Accepted");
  });

  test("gets the 413 without it, and the connection is not used again", async () => {
    await using http = await startHttp({ maxBodyBytes: CAP });
    using client = new RawClient(http.data.port);
    client.send(expectContinue(CAP + 1));
    const answer = await client.until(TOO_LARGE);
    expect(answer).toMatch(/^HTTP\/1\.1 413 /);
    expect(answer).toContain("Connection: close");
    await client.closed;
  });
});

describe("a body that comes in pieces", () => {
  test("is put together, also if a character is cut", async () => {
    await using http = await startHttp();
    using client = new RawClient(http.data.port);
    const body = Buffer.from('{"id":"é€😀"}');
    client.send(postHead([`Content-Length: ${body.length}`]));
    for (const byte of body) client.send(Uint8Array.of(byte));
    await client.until("messageId");
    expect(http.store.rows[0]).toMatchObject({ idempotencyKey: "é€😀", payload: body.toString() });
  });

  test("leaves nothing behind when its sender goes away in the middle", async () => {
    await using http = await startHttp();
    const client = new RawClient(http.data.port);
    client.send(`${postHead(["Content-Length: 1000"])}{"id":`);
    // Another request on its own connection is answered after the bytes above were read.
    await http.post('{"id":"other"}');
    client.destroy();
    await client.closed;
    // A request that still counted as in flight would be waited for, and then be logged as cut off.
    await http.stop();
    expect(http.store.rows.map(({ idempotencyKey }) => idempotencyKey)).toEqual(["other"]);
    expect(http.lines.filter(({ level }) => level !== "info")).toEqual([]);
  });
});

describe("an encoded body", () => {
  const text = '{"id":"é1","pad":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}';

  test.each([
    ["gzip", gzipSync(text)],
    ["GZip", gzipSync(text)],
    ["x-gzip", gzipSync(text)],
    ["deflate", deflateSync(text)],
    ["deflate", deflateRawSync(text)],
    ["br", brotliCompressSync(text)],
    ["gzip", Buffer.concat([gzipSync(text.slice(0, 9)), gzipSync(text.slice(9))])],
    ["identity", Buffer.from(text)],
  ])("of %s is stored decoded, without the header", async (encoding, body) => {
    await using http = await startHttp();
    expect((await http.post(body, { "Content-Encoding": encoding })).status).toBe(202);
    expect(http.store.rows[0]?.payload).toBe(text);
    expect(
      Object.keys(http.store.rows[0]?.headers ?? {})
        .join()
        .toLowerCase(),
    ).not.toContain("content-encoding");
  });

  test.each(["gzip", "deflate", "br"])("that is not %s is refused", async (encoding) => {
    await using http = await startHttp();
    expect(await seen(await http.post('{"id":1}', { "Content-Encoding": encoding }))).toEqual({
      status: 400,
      body: '{"error":"The body does not match its Content-Encoding"}',
    });
    const cut = (encoding === "br" ? brotliCompressSync : gzipSync)(text).subarray(0, -5);
    expect((await http.post(cut, { "Content-Encoding": encoding })).status).toBe(400);
  });

  test.each([
    ["gzip", gzipSync(text)],
    ["deflate", deflateSync(text)],
    ["deflate", deflateRawSync(text)],
    ["br", brotliCompressSync(text)],
  ])("of %s is refused with bytes behind its end", async (encoding, body) => {
    await using http = await startHttp();
    for (const rest of ["\0", " ", '{"id":2}']) {
      const response = await http.post(Buffer.concat([body, Buffer.from(rest)]), { "Content-Encoding": encoding });
      expect([response.status, await response.json()]).toEqual([
        400,
        { error: "The body does not match its Content-Encoding" },
      ]);
    }
    expect(http.store.rows).toEqual([]);
  });

  test.each(["zstd", "gzip, gzip", "constructor"])(
    "of %s is answered with 415 and what may be sent",
    async (encoding) => {
      await using http = await startHttp();
      const response = await http.post('{"id":1}', { "Content-Encoding": encoding });
      expect([response.status, response.headers.get("accept-encoding")]).toEqual([415, "gzip, deflate, br"]);
    },
  );

  test("is cut at the cap that holds for others, whatever it unpacks to", async () => {
    await using http = await startHttp({ maxBodyBytes: 20_000 });
    const bomb = (bytes: number) => gzipSync(JSON.stringify({ id: 1, pad: "x".repeat(bytes) }));
    const headers = { "Content-Encoding": "gzip" };
    expect(await seen(await http.post(bomb(10_000_000), headers))).toEqual({
      status: 413,
      body: '{"error":"Request body exceeds 20000 bytes"}',
    });
    expect((await http.post(bomb(19_000), headers)).status).toBe(202);
  });

  test("is refused from a sender that signs", async () => {
    const auth = {
      kind: "hmac",
      signaturePayloadFormat: "BODY",
      secret: new Secret("s"),
      headerName: "X-Signature",
      algorithm: "HmacSHA256",
      signaturePrefix: "",
      encoding: "hex",
      timestampUnit: "ms",
      timestampTolerance: 1,
    } as const;
    await using http = await startHttp({ route: { auth } });
    const body = gzipSync(text);
    const signature = (bytes: string | Buffer) => createHmac("sha256", "s").update(bytes).digest("hex");
    const post = (signed: string | Buffer) =>
      http.post(body, { "Content-Encoding": "gzip", "X-Signature": signature(signed) });
    expect((await post(text)).status).toBe(415);
    expect((await post(body)).headers.get("accept-encoding")).toBe("identity");
    expect((await http.post(text, { "Content-Encoding": "identity", "X-Signature": signature(text) })).status).toBe(
      202,
    );
  });
});

test("a byte order mark in front of a body is not stored", async () => {
  await using http = await startHttp();
  expect((await http.post('\ufeff{"id":1}')).status).toBe(202);
  expect((await http.post('{"id":\ufeff2}')).status).toBe(400);
  expect(http.store.rows.map(({ payload }) => payload)).toEqual(['{"id":1}']);
});

describe("credentials in the headers", () => {
  const auth = { kind: "bearer", token: new Secret("t") } as const;

  test("are checked before the body has come", async () => {
    await using http = await startHttp({ route: { auth } });
    using client = new RawClient(http.data.port);
    client.send(postHead(["Content-Length: 100000"]));
    expect(await client.until("missing Authorization header")).toMatch(/^HTTP\/1\.1 401 /);
    client.destroy();
  });

  test("do not hide that the body is too large", async () => {
    await using http = await startHttp({ maxBodyBytes: CAP, route: { auth } });
    using announced = new RawClient(http.data.port);
    announced.send(postHead([`Content-Length: ${CAP + 1}`]));
    await announced.until(TOO_LARGE);
    using counted = new RawClient(http.data.port);
    counted.send(postHead(["Transfer-Encoding: chunked"]) + chunk("x".repeat(CAP)));
    counted.send(chunk("x"));
    await counted.until(TOO_LARGE);
    using within = new RawClient(http.data.port);
    within.send(postHead(["Transfer-Encoding: chunked"]) + chunk("x".repeat(CAP)) + chunk(""));
    expect(await within.until("missing Authorization header")).toMatch(/^HTTP\/1\.1 401 /);
  });
});

describe("the memory for unfinished bodies", () => {
  const KIB = 1024;
  const unfinished = (port: number) => {
    const client = new RawClient(port);
    client.send(postHead([`Content-Length: ${200 * KIB}`]) + "x".repeat(100 * KIB));
    return client;
  };

  test("is taken from stalled bodies when others need it, and refused when none has stalled", async () => {
    await using http = await startHttp({ maxBufferedBodyBytes: 500 * KIB });
    const { bodies } = http;
    using first = unfinished(http.data.port);
    await eventually(() => expect(bodies.bytes).toBe(200 * KIB));
    const large = `{"id":"large","pad":"${"x".repeat(150 * KIB)}"}`;
    using second = unfinished(http.data.port);
    await eventually(() => expect(bodies.bytes).toBeGreaterThanOrEqual(400 * KIB));
    const refused = await http.post(large);
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([503, "1"]);
    // A message of a common size needs none of it.
    expect((await http.post(`{"id":"small","pad":"${"x".repeat(10 * KIB)}"}`)).status).toBe(202);
    http.clock.advance(1001);
    expect((await http.post(large)).status).toBe(202);
    await first.until("Too many unfinished request bodies");
    expect(second.received).toBe("");
  });

  test("is given back whatever becomes of the body", async () => {
    await using http = await startHttp({ maxBodyBytes: 200 * KIB, maxBufferedBodyBytes: 1000 * KIB });
    using gone = unfinished(http.data.port);
    await eventually(() => expect(http.bodies.bytes).toBeGreaterThan(0));
    gone.reset();
    await eventually(() => expect(http.bodies.bytes).toBe(0));
    using tooLarge = new RawClient(http.data.port);
    tooLarge.send(postHead(["Transfer-Encoding: chunked"]) + chunk("x".repeat(201 * KIB)));
    await tooLarge.until("exceeds");
    expect((await http.post(`{"id":"l","pad":"${"x".repeat(150 * KIB)}"}`)).status).toBe(202);
    expect(http.bodies.bytes).toBe(0);
  });

  test("lets a single body exceed it, and no second one beside it", () => {
    const budget = new BodyBudget(10, new ManualClock());
    const [one, two] = [{ giveUp() {} }, { giveUp() {} }];
    expect(budget.hold(one, 100)).toBe(true);
    expect(budget.hold(two, 1)).toBe(false);
    expect(budget.hold(one, 200)).toBe(true);
    budget.release(one);
    budget.release(one);
    expect(budget.bytes).toBe(0);
    expect(budget.hold(two, 20)).toBe(true);
  });
});
