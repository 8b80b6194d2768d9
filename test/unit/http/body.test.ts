import { describe, expect, test } from "@jest/globals";
import { failOnLeaks } from "../../support/leaks.ts";
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

  test("keeps the connection of a sender that finishes its large body", async () => {
    await using http = await startHttp({ maxBodyBytes: CAP });
    using client = new RawClient(http.data.port);
    client.send(postHead([`Content-Length: ${CAP * 2}`]));
    await client.until(TOO_LARGE);
    client.send(" ".repeat(CAP * 2));
    client.send(`${postHead(["Content-Length: 8"])}{"id":1}`);
    await client.until("messageId");
  });

  test("cuts off a sender that goes on without end", async () => {
    await using http = await startHttp({ maxBodyBytes: CAP });
    using client = new RawClient(http.data.port);
    client.send(postHead(["Transfer-Encoding: chunked"]));
    const endless = setInterval(() => client.send(chunk("x".repeat(1000))), 10);
    await client.until(TOO_LARGE);
    await client.closed;
    clearInterval(endless);
  });

  test("cuts off an endless body on a path that reads none", async () => {
    await using http = await startHttp({ maxBodyBytes: CAP });
    using client = new RawClient(http.data.port);
    client.send(postHead(["Transfer-Encoding: chunked"], "/nowhere") + chunk("x"));
    await client.until('{"error":"Not found"}');
    await client.closed;
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

  test("gets the 404 of an unknown path without it", async () => {
    await using http = await startHttp({ maxBodyBytes: CAP });
    using client = new RawClient(http.data.port);
    client.send(postHead(["Content-Length: 8", "Expect: 100-continue"], "/nowhere"));
    expect(await client.until("Not found")).toMatch(/^HTTP\/1\.1 404 /);
    client.destroy();
  });
});

describe("a body that comes in pieces", () => {
  test("is put together, also where a character is cut", async () => {
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

  test("may be empty", async () => {
    await using http = await startHttp();
    expect(await seen(await http.post(""))).toEqual({ status: 400, body: '{"error":"Invalid JSON"}' });
  });
});
