import { once } from "node:events";
import { createServer as createProxy, type IncomingMessage } from "node:http";
import { createServer, type Server } from "node:https";
import { type AddressInfo, connect, type Socket } from "node:net";
import { describe, expect, test } from "@jest/globals";
import { proxyOf } from "../../../../../src/adapters/destinations/http/transport.ts";
import { Secret } from "../../../../../src/model/secret.ts";
import { startBlackHole } from "../../../../support/blackHole.ts";
import { Receiver } from "../../../../support/receiver.ts";
import { pem, withServers } from "./setup.ts";

const { destinations, servers } = withServers();
const secret = (name: string) => new Secret(pem(name));
const CA = secret("ca");

/** A receiver with the certificate of receiver.test, which asks for one of the same authority. */
async function startTls(requestCert = false): Promise<{ readonly url: string; readonly bodies: string[] }> {
  const bodies: string[] = [];
  const options = {
    cert: pem("server"),
    key: pem("server.key"),
    ca: pem("ca"),
    requestCert,
    rejectUnauthorized: requestCert,
  };
  const server: Server = createServer(options, (request, response) => {
    request.setEncoding("utf8").on("data", (text: string) => bodies.push(text));
    request.on("end", () => response.end());
  });
  servers.push(server);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`, bodies };
}

/** A proxy that opens tunnels. */
async function startProxy(credentials?: string): Promise<{ readonly url: string; readonly targets: string[] }> {
  const targets: string[] = [];
  const server = createProxy();
  server.on("connect", (request: IncomingMessage, socket: Socket) => {
    targets.push(request.url ?? "");
    socket.on("error", () => {});
    if (credentials !== undefined && request.headers["proxy-authorization"] !== credentials) {
      socket.end("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
      return;
    }
    const [host = "", port = ""] = (request.url ?? "").split(":");
    const target = connect(Number(port), host, () => {
      socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
      target.pipe(socket).pipe(target);
    });
    target.on("error", () => socket.destroy());
    socket.on("close", () => target.destroy());
  });
  servers.push(server);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, targets };
}

describe("TLS", () => {
  test("trusts the configured authority and no other, and checks the name", async () => {
    const { url, bodies } = await startTls();
    const tls = { ca: CA, serverName: "receiver.test" };
    await destinations.create({ baseUrl: url, tls }).publish({ body: "1" });
    expect(bodies).toEqual(["1"]);
    const failures = [{ serverName: "receiver.test" }, { ca: CA }, { ca: CA, serverName: "other.test" }];
    for (const wrong of failures) {
      const error = await destinations.create({ baseUrl: url, tls: wrong }).failure({ body: "2" });
      expect(error.code).toBe("tls");
    }
    expect(bodies).toEqual(["1"]);
  });

  test("shows the client certificate", async () => {
    const { url, bodies } = await startTls(true);
    const tls = { ca: CA, serverName: "receiver.test" };
    const own = { ...tls, certificate: secret("client"), key: secret("client.key") };
    await destinations.create({ baseUrl: url, tls: own }).publish({ body: "1" });
    await destinations.create({ baseUrl: url, tls }).failure({ body: "2" });
    expect(bodies).toEqual(["1"]);
  });
});

describe("a proxy", () => {
  test("opens the tunnels, for https with the TLS of the receiver and for http", async () => {
    const [proxy, secure, receiver] = await Promise.all([startProxy(), startTls(), Receiver.start()]);
    await using _plain = receiver;
    const tls = { ca: CA, serverName: "receiver.test" };
    const { publish } = destinations.create({ baseUrl: secure.url, tls, proxy: proxy.url });
    await publish({ body: "1" });
    await publish({ body: "2" });
    expect(secure.bodies).toEqual(["1", "2"]);
    await destinations.create({ baseUrl: receiver.url, proxy: proxy.url }).publish({ body: "3" });
    const [request] = await receiver.received(1);
    expect(request?.headers).toMatchObject({ host: `127.0.0.1:${receiver.port}`, "content-length": "1" });
    expect(new Set(proxy.targets)).toEqual(new Set([new URL(secure.url).host, new URL(receiver.url).host]));
  });

  test("gets the credentials of its URL, and its refusal is an error without them", async () => {
    await using receiver = await Receiver.start();
    const proxy = await startProxy(`Basic ${Buffer.from("user:p@ss word").toString("base64")}`);
    const withLogin = proxy.url.replace("http://", "http://user:p%40ss%20word@");
    await destinations.create({ baseUrl: receiver.url, proxy: withLogin }).publish();
    const error = await destinations.create({ baseUrl: receiver.url, proxy: proxy.url }).failure();
    const target = new URL(receiver.url).host;
    expect([error.code, error.message]).toEqual([
      "unreachable",
      `CONNECT ${target} to the proxy ${proxy.url} was answered 407`,
    ]);
    const wrong = proxy.url.replace("http://", "http://user:other@");
    const refused = await destinations.create({ baseUrl: receiver.url, proxy: wrong }).failure();
    expect(`${refused.message} ${refused.cause}`).not.toContain("other");
    expect(receiver.requests).toHaveLength(1);
  });

  test("a key that does not fit the certificate fails the publish, by a proxy and without", async () => {
    const [proxy, secure] = await Promise.all([startProxy(), startTls()]);
    const tls = { ca: CA, certificate: secret("server"), key: secret("client.key"), serverName: "receiver.test" };
    for (const by of ["none", proxy.url]) {
      const error = await destinations.create({ baseUrl: secure.url, tls, proxy: by }).failure();
      expect([by, error.code, String(error.cause)]).toEqual([
        by,
        "tls",
        expect.stringContaining("key values mismatch"),
      ]);
    }
  });

  test("gets a user name without a password, such as a token", async () => {
    await using receiver = await Receiver.start();
    const proxy = await startProxy(`Basic ${Buffer.from("token%:").toString("base64")}`);
    const withToken = proxy.url.replace("http://", "http://token%@");
    await destinations.create({ baseUrl: receiver.url, proxy: withToken }).publish();
    expect(receiver.requests).toHaveLength(1);
  });

  test("that closes connections fails the publish at once, by one connection", async () => {
    let connections = 0;
    const closing = createProxy().on("connection", (socket: Socket) => {
      connections += 1;
      socket.destroy();
    });
    servers.push(closing);
    closing.listen(0, "127.0.0.1");
    await once(closing, "listening");
    const url = `http://127.0.0.1:${(closing.address() as AddressInfo).port}`;
    const { failure } = destinations.create({ baseUrl: "http://127.0.0.1:9", proxy: url, timeoutMs: 1000 });
    expect(await failure()).toMatchObject({ code: "connection_lost", message: expect.stringContaining(url) });
    expect(connections).toBe(1);
  });

  test("that is silent delays nothing once it answers again", async () => {
    await using receiver = await Receiver.start();
    const proxy = await startProxy();
    const hole = await startBlackHole();
    await using _hole = hole;
    let isSilent = true;
    const server = createProxy();
    server.on("connect", (request: IncomingMessage, socket: Socket) => {
      socket.on("error", () => {});
      const target = connect(isSilent ? hole.port : Number(new URL(proxy.url).port), "127.0.0.1", () => {
        target.write(`CONNECT ${request.url} HTTP/1.1\r\nhost: ${request.url}\r\n\r\n`);
        target.pipe(socket).pipe(target);
      });
      target.on("error", () => socket.destroy());
      socket.on("close", () => target.destroy());
    });
    servers.push(server);
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const { publish, failure } = destinations.create(
      { baseUrl: receiver.url, proxy: url, timeoutMs: 300 },
      { connections: 1 },
    );
    expect(await failure()).toMatchObject({ code: "timeout" });
    isSilent = false;
    const outcomes = await Promise.allSettled([publish(), publish()]);
    expect(outcomes.map(({ status }) => status)).toContain("fulfilled");
  });

  test.each(["socks5://u:s3cret@proxy.example", "http://u:s3cret@proxy example", "u:s3cret@:99999"])(
    "of the environment that is none stops the start, without its password: %s",
    (text) => {
      const act = () => proxyOf(new URL("https://x.example/"), undefined, { HTTPS_PROXY: text });
      expect(act).toThrow("HTTPS_PROXY is not the URL of an HTTP proxy");
      expect(act).not.toThrow("s3cret");
    },
  );

  const PROXY = "http://proxy.example:3128";
  const ENV = {
    HTTPS_PROXY: PROXY,
    http_proxy: "plain.example",
    NO_PROXY: "a.example, .b.example,*.c.example:8443 ,10.0.0.0/8,::1,192.0.2.1:8443,[::2],[::3]:8443",
  };
  test.each([
    ["https://x.example/", PROXY],
    ["http://x.example/", "http://plain.example"],
    ["https://a.example/", undefined],
    ["https://sub.a.example/", undefined],
    ["https://nota.example/", PROXY],
    ["https://b.example/", undefined],
    ["https://sub.b.example:8443/", undefined],
    ["https://c.example:8443/", undefined],
    ["https://c.example/", PROXY],
    ["https://10.1.2.3/", undefined],
    ["https://[::ffff:10.1.2.3]/", undefined],
    ["https://11.1.2.3/", PROXY],
    ["https://[::1]/", undefined],
    ["https://A.Example/", undefined],
    ["https://192.0.2.1:8443/", undefined],
    ["https://192.0.2.1/", PROXY],
    ["https://[::2]/", undefined],
    ["https://[::3]:8443/", undefined],
    ["https://[::3]/", PROXY],
  ])("of the environment for %s: %s", (url, expected) => {
    expect(proxyOf(new URL(url), undefined, ENV)).toBe(expected);
  });

  test("that is configured wins over the environment, and `none` means none", () => {
    const url = new URL("https://a.example/");
    expect(proxyOf(url, "http://own.example", ENV)).toBe("http://own.example");
    expect(proxyOf(new URL("https://x.example/"), "none", ENV)).toBeUndefined();
    expect(proxyOf(url, undefined, {})).toBeUndefined();
    expect(proxyOf(url, undefined, { HTTPS_PROXY: PROXY, NO_PROXY: "*" })).toBeUndefined();
    expect(proxyOf(url, undefined, { HTTPS_PROXY: "" })).toBeUndefined();
  });
});
