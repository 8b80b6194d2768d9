import { v7 as uuidv7 } from "uuid";
import type { MessageId, NewInboxRow } from "../../src/model/rows.ts";
import { acceptedIn } from "./accepted.ts";
import { BODY } from "./body.ts";
import { type Environment, type Program, receivedBy, residentMiB, until } from "./environment.ts";
import { rawLoop, untilSettled, vacuum } from "./outbox.ts";
import { costInPairs, type Worker } from "./pairs.ts";
import { inWords, processorSpent, sumOf, usAMessage } from "./processor.ts";
import { type Figure, perSecond, rate } from "./report.ts";

/** (c) HTTP in to HTTP out through one process with every role: the rate, its processor time; and (d) its memory at the end. */
export async function endToEnd(environment: Environment): Promise<Figure[]> {
  const { sql } = environment;
  const seconds = 20;
  const receiver = await environment.program("receiver.js", []);
  const parts = await bareParts(environment, receiver);
  const bare = perSecond(1, parts.ms);
  await sql.query("TRUNCATE inbox, outbox");
  await vacuum(environment);
  const svc = await environment.svc([], {
    OUTBOX_BATCHSIZE: 500,
    OUTBOX_CONCURRENCY: 64,
    INBOX_RELAY_BATCHSIZE: 500,
    DESTINATIONS_RECEIVER_BASEURL: `http://127.0.0.1:${receiver.port}`,
  });
  const sender = await environment.program("sender.js", [svc.port, "/inbox/bench", 128, 500]);
  const programs = { service: svc, sender, receiver };
  const before = await receivedBy(receiver);
  const spentBefore = await processorSpent(environment, programs);
  const startedAt = performance.now();
  const accepted = await acceptedIn(sender, seconds * 1000);
  const sendingMs = performance.now() - startedAt;
  await until(async () => (await receivedBy(receiver)) - before >= accepted);
  const deliveredMs = performance.now() - startedAt;
  const memory = residentMiB(svc.pid);
  await untilSettled(environment);
  const spent = usAMessage(spentBefore, await processorSpent(environment, programs), accepted);
  for (const program of [sender, svc, receiver]) await program.stop();
  const costs = await costInPairs("(c) HTTP in to HTTP out", startService);
  const delivered = perSecond(accepted, deliveredMs);
  const lagMs = Math.round(deliveredMs - sendingMs);
  const ratio = delivered / bare;
  return [
    {
      name: `(c) HTTP in to HTTP out, ${seconds} s sustained`,
      value: `${rate(delivered)}, the last ${lagMs} ms after the last receipt`,
      baseline: `${rate(bare)} bare requests in and out and bare statements, one after another`,
      ratio,
      target: ">= 5,000/s",
      met: delivered >= 5000,
    },
    {
      name: "(c) processor time a message",
      value: inWords(spent),
      baseline: inWords(parts.us),
      ratio: sumOf(spent) / sumOf(parts.us),
      target: "",
      met: true,
    },
    {
      name: "(d) resident memory at the end of (c)",
      value: memory === undefined ? "unknown" : `${Math.round(memory)} MiB`,
      baseline: "",
      ratio: undefined,
      target: "< 200 MiB",
      met: memory !== undefined && memory < 200,
    },
    ...costs,
  ];
}

/** A service with every role, which receives and delivers for a second. */
async function startService(environment: Environment): Promise<Worker> {
  return await startReceipts(environment, (port) => destinationsAt(port, ["receiver"]), 1);
}

/** The destinations of these names, all of one receiver, and a route to them: a list if there are several. */
export function destinationsAt(port: number, names: readonly string[]): Readonly<Record<string, object>> {
  const to = names.length === 1 ? { destination: names[0] } : { destinations: names };
  return {
    destinations: Object.fromEntries(names.map((name) => [name, { baseUrl: `http://127.0.0.1:${port}` }])),
    routes: [{ topicPattern: "**", ...to }],
  };
}

/** The same for other destinations. @param deliveries of a message @param connections of the sender */
export async function startReceipts(
  environment: Environment,
  sections: (port: number) => Readonly<Record<string, object>>,
  deliveries: number,
  connections = 128,
): Promise<Worker> {
  const receiver = await environment.program("receiver.js", []);
  const settings = { OUTBOX_BATCHSIZE: 500, OUTBOX_CONCURRENCY: 64, INBOX_RELAY_BATCHSIZE: 500 };
  const service = await environment.svc([], settings, sections(receiver.port));
  const sender = await environment.program("sender.js", [service.port, "/inbox/bench", connections, 500]);
  const sendFor = async (ms: number) => {
    const before = await receivedBy(receiver);
    const accepted = await acceptedIn(sender, ms);
    await until(async () => (await receivedBy(receiver)) - before >= accepted * deliveries);
    await untilSettled(environment);
    return accepted;
  };
  return {
    service,
    // After a rest the poller leaves the first claims of a second to passes.
    async prepare() {
      await sendFor(500);
      await environment.sql.query("TRUNCATE inbox, outbox");
    },
    work: () => sendFor(1000),
  };
}

/**
 * What every message needs, bare and one after another: a request to the server without a database, the statements of its life in batches of 500 on
 * one connection, and a request of the HTTP client.
 *
 * @returns ms a message by the clock, and its processor time in us by what spends it
 */
async function bareParts(environment: Environment, receiver: Program) {
  const count = 20_000;
  const server = await environment.program("serverWithoutDatabase.js", []);
  const sender = await environment.program("sender.js", [server.port, "/inbox/bench", 128, 500]);
  const client = await environment.program("bareProducer.js", [`http://127.0.0.1:${receiver.port}`]);
  const spent = () => processorSpent(environment, { sender, server, client, receiver });
  const rounds: { readonly ms: number; readonly us: Readonly<Record<string, number>> }[] = [];
  // The first round warms up.
  for (let round = 0; round <= 3; round += 1) {
    const atFirst = await spent();
    const accepted = await acceptedIn(sender, 2000);
    const afterRequestsIn = await spent();
    const statementsMs = await bareStatements(environment, count);
    const afterStatements = await spent();
    client.tell(`${count} 64`);
    const outMs = Number(await client.line());
    const requestsIn = usAMessage(atFirst, afterRequestsIn, accepted);
    const statements = usAMessage(afterRequestsIn, afterStatements, count);
    const requestsOut = usAMessage(afterStatements, await spent(), count);
    rounds.push({
      ms: 2000 / accepted + (statementsMs + outMs) / count,
      us: {
        sender: requestsIn.sender ?? 0,
        server: requestsIn.server ?? 0,
        database: statements.database ?? 0,
        client: requestsOut.client ?? 0,
        receiver: requestsOut.receiver ?? 0,
      },
    });
  }
  for (const program of [sender, client, server]) await program.stop();
  const [, middle] = rounds.slice(1).toSorted((a, b) => a.ms - b.ms);
  if (middle === undefined) throw new Error("no round was measured");
  return middle;
}

/** @returns ms for inserting, relaying, claiming and completing so many messages */
async function bareStatements(environment: Environment, count: number): Promise<number> {
  const { sql, store } = environment;
  await sql.query("TRUNCATE inbox, outbox");
  await vacuum(environment);
  const startedAt = performance.now();
  for (let done = 0; done < count; done += BATCH) {
    await store.inbox.insert(Array.from({ length: BATCH }, (_, n) => inboxRow(done + n)));
    const { relayed } = await store.inbox.relay({ ...RELAY, limit: BATCH });
    if (relayed !== BATCH) throw new Error(`relayed ${relayed} rows instead of ${BATCH}`);
  }
  await rawLoop(environment, count, BATCH);
  return performance.now() - startedAt;
}

/** A received message of 1 kB, of one of 500 aggregates. */
function inboxRow(n: number): NewInboxRow {
  const id = uuidv7() as MessageId;
  return {
    id,
    source: "bench",
    idempotencyKey: id,
    aggregateId: `key-${n % 500}`,
    eventType: null,
    payload: BODY,
    state: "pending",
    consumption: "push",
    correlationId: id,
    headers: { "content-type": "application/json", host: "localhost" },
    lastError: null,
  };
}

const BATCH = 500;

/** The parameters of a relay pass, except its limit. */
const RELAY = {
  topics: { bench: ["bench"] },
  maxAttempts: 5,
  droppedHeaders: { names: ["host"], prefixes: ["proxy-"] },
} as const;
