import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "undici";
import type { Api, KubeObject } from "./api.ts";
import { HOST_ADDRESS } from "./container.ts";

/** A receiver of deliveries that pods reach at `host.test`. */
export interface Destination {
  readonly port: number;
  /** How often each message has arrived, in the order of their first arrivals. */
  readonly arrivals: ReadonlyMap<string, number>;
  close(): Promise<void>;
}

export async function startDestination(): Promise<Destination> {
  const arrivals = new Map<string, number>();
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const { id } = JSON.parse(Buffer.concat(chunks).toString()) as { id: string };
    arrivals.set(id, (arrivals.get(id) ?? 0) + 1);
    response.writeHead(204).end();
  });
  server.listen(0, HOST_ADDRESS);
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    arrivals,
    async close() {
      server.close();
      server.closeAllConnections();
      await once(server, "close");
    },
  };
}

export interface ServiceName {
  readonly namespace: string;
  readonly service: string;
}

/** What senders met. */
export interface Met {
  /** Answered with 202, in their order. */
  readonly accepted: readonly string[];
  /** Connections that ended while a request was on them. */
  readonly resets: readonly string[];
  /** Other failures, each of which was tried again, by status or code of the error. */
  readonly failures: ReadonlyMap<string, number>;
}

export interface Senders {
  readonly met: Met;
  /** Resolves when so many more messages have been accepted. */
  moreAccepted(count: number): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Sends messages to a Service through kept connections, one key per sender and one message after another. A new connection leads to a ready pod, as kube-proxy's
 * would; one that is there is used until the pod closes it, or asks for that with `Connection: close`. What fails is sent again.
 *
 * @param run begins the ids of its messages, which are `run-sender-number`
 */
export function startSenders(api: Api, { namespace, service }: ServiceName, count: number, run: string): Senders {
  const accepted: string[] = [];
  const resets: string[] = [];
  const failures = new Map<string, number>();
  const stopping = new AbortController();

  const fail = async (what: string) => {
    failures.set(what, (failures.get(what) ?? 0) + 1);
    await sleep(RETRY_MS);
  };
  const send = async (sender: number) => {
    let client: Client | undefined;
    for (let n = 0; !stopping.signal.aborted; ) {
      client ??= await connect(api, { namespace, service }, sender);
      if (client === undefined) {
        await fail("no ready pod");
        continue;
      }
      const id = `${run}-${sender}-${n}`;
      try {
        const { statusCode, headers, body } = await client.request({
          method: "POST",
          path: "/inbox/orders",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ id, type: "order.placed", key: `key-${sender}` }),
        });
        await body.dump();
        if (statusCode === 202 || statusCode === 200) {
          accepted.push(id);
          n += 1;
        } else await fail(`status ${statusCode}`);
        if (headers.connection === "close") {
          await client.destroy();
          client = undefined;
        }
      } catch (error) {
        const { code = String(error) } = error as { readonly code?: string };
        await client?.destroy();
        client = undefined;
        if (RESETS.has(code)) resets.push(`${id}: ${code}`);
        await fail(code);
      }
      await sleep(PAUSE_MS);
    }
    await client?.destroy();
  };
  const senders = Array.from({ length: count }, (_, sender) => send(sender));
  return {
    met: { accepted, resets, failures },
    async moreAccepted(more) {
      const until = accepted.length + more;
      while (accepted.length < until) await sleep(PAUSE_MS);
    },
    async stop() {
      stopping.abort();
      await Promise.all(senders);
    },
  };
}

/** A client of one ready pod behind the Service; undefined when there is none. */
async function connect(api: Api, { namespace, service }: ServiceName, sender: number): Promise<Client | undefined> {
  const selector = `labelSelector=kubernetes.io%2Fservice-name%3D${service}`;
  const slices = await api.list(`/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices?${selector}`);
  const ready = slices.flatMap(({ endpoints, ports }) =>
    (endpoints ?? [])
      .filter(({ conditions }: KubeObject) => conditions.ready)
      .map(({ addresses }: KubeObject) => `http://${addresses[0]}:${ports[0].port}`),
  );
  const origin = ready[sender % Math.max(1, ready.length)];
  return origin === undefined ? undefined : new Client(origin, { pipelining: 1, connectTimeout: 3000 });
}

/** Of undici and of Node. */
const RESETS = new Set(["ECONNRESET", "EPIPE", "UND_ERR_SOCKET"]);
const PAUSE_MS = 4;
const RETRY_MS = 50;
