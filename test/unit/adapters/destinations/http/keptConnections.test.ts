import { once } from "node:events";
import { createServer, type RequestListener, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { describe, expect, test } from "@jest/globals";
import { Secret } from "../../../../../src/model/secret.ts";
import { pem, withServers } from "./setup.ts";

const { destinations, servers } = withServers();
const TLS = { cert: pem("server"), key: pem("server.key") };

/**
 * A receiver that answers the first request of each connection, and ends the connection at the second one.
 *
 * @param end how it ends it
 * @param settings.answer of a first request; 200 without a body by default
 * @param settings.isTls whether it speaks TLS, with the certificate of receiver.test
 * @returns its URL, and the bodies of all requests
 */
async function startEnding(
  end: (socket: Socket) => void,
  settings: { readonly answer?: (response: ServerResponse) => void; readonly isTls?: boolean } = {},
): Promise<{ readonly url: string; readonly bodies: string[] }> {
  const { answer = (response) => response.end(), isTls = false } = settings;
  const bodies: string[] = [];
  const used = new WeakSet<Socket>();
  const listener: RequestListener = (request, response) => {
    let body = "";
    request.setEncoding("utf8").on("data", (text: string) => {
      body += text;
    });
    request.on("end", () => {
      bodies.push(body);
      if (used.has(request.socket)) return end(request.socket);
      used.add(request.socket);
      answer(response);
    });
  };
  const server = isTls ? createTlsServer(TLS, listener) : createServer(listener);
  servers.push(server);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return { url: `${isTls ? "https" : "http"}://127.0.0.1:${port}`, bodies };
}

const ENDS = [
  ["a reset", (socket: Socket) => socket.resetAndDestroy()],
  ["an end", (socket: Socket) => socket.end()],
] as const;

describe.each(ENDS)("a kept connection that ends by %s before a byte of the answer", (_how, end) => {
  test("costs no attempt: the request is repeated once, on a new connection", async () => {
    const { url, bodies } = await startEnding(end);
    const { publish, calls } = destinations.create({ baseUrl: url }, { connections: 1 });
    const sent = Array.from({ length: 10 }, (_, n) => `message ${n}`);
    for (const body of sent) await publish({ body });
    expect(calls).toEqual(sent.map(() => "httpPublishResponse(2xx)"));
    // Each but the first came over the used connection, and then over a new one, which the next one finds used.
    expect(bodies).toEqual(sent.flatMap((body, n) => (n === 0 ? [body] : [body, body])));
  });

  test("costs a token request no attempt", async () => {
    const answer = (response: ServerResponse) =>
      response.end(JSON.stringify({ access_token: "t", token_type: "Bearer", expires_in: 0 }));
    const issuer = await startEnding(end, { answer });
    const { url } = await startEnding(end);
    const { publish } = destinations.create({
      baseUrl: url,
      auth: {
        kind: "oauth2",
        clientId: "client",
        clientSecret: new Secret("secret"),
        tokenUrl: issuer.url,
        extraParams: {},
      },
    });
    for (let n = 0; n < 4; n++) await publish();
    expect(issuer.bodies).toHaveLength(7);
  });
});

test.each([1, 8])(
  "an idle connection of %i that is reset when a publish begins costs no attempt",
  async (connections) => {
    const idle: Socket[] = [];
    const { url, bodies } = await startEnding(() => {}, {
      answer(response) {
        if (response.socket !== null) idle.push(response.socket);
        response.end();
      },
    });
    const { publish, calls } = destinations.create({ baseUrl: url }, { connections });
    const all = () => Promise.all(Array.from({ length: connections }, (_, n) => publish({ body: String(n) })));
    await all();
    // The publishes find the connections open: nothing was read since.
    for (const socket of idle.splice(0)) socket.resetAndDestroy();
    await all();
    expect(calls).toEqual(Array.from({ length: 2 * connections }, () => "httpPublishResponse(2xx)"));
    expect(bodies).toHaveLength(2 * connections);
  },
);

describe("a request is not repeated", () => {
  test("a second time", async () => {
    const { url, bodies } = await startEnding((socket) => socket.resetAndDestroy(), {
      answer: (response) => (bodies.length === 1 ? response.end() : response.socket?.resetAndDestroy()),
    });
    const { publish, failure, calls } = destinations.create({ baseUrl: url }, { connections: 1 });
    await publish({ body: "first" });
    expect(await failure({ body: "second" })).toMatchObject({ code: "connection_lost" });
    expect(bodies).toEqual(["first", "second", "second"]);
    expect(calls).toEqual(["httpPublishResponse(2xx)", "httpPublishResponse(error)"]);
  });

  test.each([
    "H",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 103 Early Hints\r\n\r\n",
    "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n",
  ])("when a part of an answer came: %j", async (part) => {
    const { url, bodies } = await startEnding((socket) => socket.end(part));
    const { publish, failure } = destinations.create({ baseUrl: url }, { connections: 1 });
    await publish({ body: "first" });
    expect(await failure({ body: "second" })).toMatchObject({ code: expect.stringMatching(/connection_lost|bad_/) });
    expect(bodies).toEqual(["first", "second"]);
  });

  test("when the publish itself ends the connection, for its signal", async () => {
    const abort = new AbortController();
    const { url, bodies } = await startEnding(() => abort.abort(new Error("no longer wanted")));
    const { publish } = destinations.create({ baseUrl: url }, { connections: 1 });
    await publish({ body: "first" });
    await expect(publish({ body: "second" }, abort.signal)).rejects.toThrow("no longer wanted");
    await publish({ body: "third" });
    expect(bodies).toEqual(["first", "second", "third"]);
  });

  test("on a first use of a connection, though one before it ended", async () => {
    const ends: Promise<unknown>[] = [];
    const { url, bodies } = await startEnding(() => {}, {
      answer: ({ socket }) => {
        if (socket === null) return;
        ends.push(once(socket, "close"));
        if (bodies.length === 1) socket.end("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        else socket.resetAndDestroy();
      },
    });
    const { publish, failure } = destinations.create({ baseUrl: url }, { connections: 1 });
    await publish({ body: "first" });
    await Promise.all(ends);
    expect(await failure({ body: "second" })).toMatchObject({ code: "connection_lost" });
    expect(bodies).toEqual(["first", "second"]);
  });
});
