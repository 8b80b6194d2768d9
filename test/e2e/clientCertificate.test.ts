import { readFileSync } from "node:fs";
import { request as httpRequest } from "node:http";
import { createServer, request as httpsRequest } from "node:https";
import type { AddressInfo } from "node:net";
import type { TLSSocket } from "node:tls";
import { expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.ts";
import { ordersTo, useServices } from "../support/service.ts";

const services = useServices();
const pem = (name: string) => readFileSync(new URL(`../support/tls/${name}.pem`, import.meta.url));
const HEADER = "X-Client-Cert";

/** A proxy that ends mutual TLS and hands the certificate on, in place of what the client sent. */
async function startProxy(to: number): Promise<number> {
  const options = { key: pem("server.key"), cert: pem("server"), ca: pem("ca"), requestCert: true };
  const server = createServer(options, (request, response) => {
    const { raw } = (request.socket as TLSSocket).getPeerCertificate();
    const headers = { ...request.headers, [HEADER.toLowerCase()]: `:${raw.toString("base64")}:` };
    const forwarded = httpRequest(
      { host: "127.0.0.1", port: to, method: request.method, path: request.url, headers, agent: false },
      (answer) => {
        response.writeHead(answer.statusCode ?? 500, answer.headers);
        answer.pipe(response);
      },
    );
    request.pipe(forwarded);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  services.defer(() => new Promise((resolve) => server.close(resolve)));
  return (server.address() as AddressInfo).port;
}

/** @returns the status, or the error of the connection */
function post(port: number, body: object, client: object): Promise<number | string> {
  const options = { host: "127.0.0.1", port, path: "/inbox/orders", method: "POST", agent: false } as const;
  return new Promise((resolve) => {
    const trusted = { ca: pem("ca"), checkServerIdentity: () => undefined };
    const request = httpsRequest({ ...options, ...trusted, ...client, headers: { [HEADER]: "forged" } }, (answer) => {
      answer.resume().once("end", () => resolve(answer.statusCode ?? 0));
    });
    request.once("error", (error) => resolve((error as NodeJS.ErrnoException).code ?? error.message));
    request.end(JSON.stringify(body));
  });
}

test("a source takes what comes with a client certificate through its proxy, and nothing else", async () => {
  const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
  const auth = { certificateHeader: HEADER, trustedProxies: ["127.0.0.0/8"], commonNames: ["client.test"] };
  const other = { ...auth, trustedProxies: ["10.0.0.0/8"] };
  const config = ordersTo(receiver, {
    sources: { orders: { auth }, other: { path: "/other", idempotencyKeyPath: "$.id", topic: "o", auth: other } },
    routes: [{ topicPattern: "**", destination: "receiver" }],
  });
  const service = await services.start({ database, config });
  const proxy = await startProxy(service.port);

  const certified = { key: pem("client.key"), cert: pem("client") };
  expect(await post(proxy, { id: "a", key: "k", type: "paid" }, certified)).toBe(202);
  expect(await post(proxy, { id: "b", key: "k", type: "paid" }, {})).not.toBe(202);
  await eventually(async () => expect(receiver.requests).toHaveLength(1));

  const header = { [HEADER]: `:${Buffer.from("no certificate").toString("base64")}:` };
  const forged = await service.post({ id: "c" }, { headers: header });
  expect([forged.status, forged.headers["www-authenticate"]]).toEqual([401, "ClientCertificate"]);
  expect((await service.post({ id: "d" })).text).toBe('{"error":"missing X-Client-Cert header"}');
  expect((await service.post({ id: "e" }, { path: "/inbox/other", headers: header })).text).toBe(
    '{"error":"the request did not come through a trusted proxy"}',
  );
  const rows = await database.query<{ headers: object }>("SELECT idempotency_key, headers FROM inbox");
  expect(rows).toMatchObject([{ idempotency_key: "a" }]);
  expect(JSON.stringify([rows, receiver.requests.map((each) => each.headers)]).toLowerCase()).not.toContain(
    "x-client-cert",
  );
});
