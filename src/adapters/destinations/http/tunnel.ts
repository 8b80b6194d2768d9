import { type IncomingMessage, request as overHttp } from "node:http";
import { request as overHttps } from "node:https";
import type { Socket } from "node:net";
import { buildConnector } from "undici";
import { percentDecoded } from "../../../model/secret.ts";
import { httpError, publishErrorOf } from "./errors.ts";

/**
 * A connector for the HTTP client that connects through the tunnel of a proxy (RFC 9110, section 9.3.6). The client's
 * own one connects again without a pause to a proxy that closes connections, and waits five minutes for one that is
 * silent.
 *
 * @param proxy may have a user name and password; errors do not show them
 * @param timeoutMs of the tunnel, and again of the TLS handshake in it; 0 for none
 * @param tls options of Node's TLS for the server behind the proxy
 */
export function tunnelConnector(proxy: URL, timeoutMs: number, tls: object): buildConnector.connector {
  const secure = buildConnector({ ...tls, timeout: timeoutMs });
  return (options, callback) => {
    const { protocol, port, host } = options;
    const isTls = protocol === "https:";
    const authority = port ? String(host) : `${host}:${isTls ? 443 : 80}`;
    openTunnel(proxy, authority, timeoutMs).then(
      (socket) => {
        if (!isTls) return callback(null, socket);
        try {
          secure({ ...options, httpSocket: socket }, callback);
        } catch (error) {
          // A key that does not fit its certificate, for one.
          socket.destroy();
          callback(error as Error, null);
        }
      },
      (error: Error) => callback(error, null),
    );
  };
}

/** Rejects with PublishError. */
function openTunnel(proxy: URL, authority: string, timeoutMs: number): Promise<Socket> {
  const name = `CONNECT ${authority} to the proxy ${proxy.origin}`;
  return new Promise((resolve, reject) => {
    const request = (proxy.protocol === "https:" ? overHttps : overHttp)({
      method: "CONNECT",
      hostname: proxy.hostname.replace(/^\[|\]$/g, ""),
      port: proxy.port,
      path: authority,
      headers: { host: authority, ...credentials(proxy) },
      agent: false,
    });
    const late = () => request.destroy(httpError("timeout", `${name} was not answered within ${timeoutMs} ms`));
    const timer = timeoutMs > 0 ? setTimeout(late, timeoutMs) : undefined;
    request.once("connect", ({ statusCode = 0 }: IncomingMessage, socket: Socket, head: Buffer) => {
      clearTimeout(timer);
      if (statusCode < 200 || statusCode > 299) {
        socket.destroy();
        reject(httpError("unreachable", `${name} was answered ${statusCode}`));
        return;
      }
      if (head.length > 0) socket.unshift(head);
      resolve(socket);
    });
    request.once("error", (error) => {
      clearTimeout(timer);
      reject(publishErrorOf(name, error));
    });
    request.end();
  });
}

function credentials({ username, password }: URL): { readonly "proxy-authorization"?: string } {
  if (username === "" && password === "") return {};
  const both = `${percentDecoded(username)}:${percentDecoded(password)}`;
  return { "proxy-authorization": `Basic ${Buffer.from(both).toString("base64")}` };
}
