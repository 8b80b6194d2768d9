import jsonata from "jsonata";
import { EvaluatorPool } from "../../src/runtime/evaluation/pool.ts";
import type { Environment } from "./environment.ts";
import { BUSY_POLLER, fillOutbox, timeDrain, vacuum } from "./outbox.ts";
import { type Figure, median, perSecond, rate } from "./report.ts";

const ROUNDS = 3;
const EXPRESSION = '{"orderId": id, "who": customer.name, "total": $sum(items.(qty * price))}';
/** An order of 1 kB. */
const ORDER = JSON.stringify({
  id: "order-1",
  customer: { name: "Ada", email: "ada@example.com" },
  items: [
    { sku: "pen", qty: 2, price: 3.5 },
    { sku: "book", qty: 1, price: 9 },
  ],
  note: "x".repeat(820),
});

/** (f) Small transforms in the evaluation worker, 64 at a time, against JSONata called in a plain loop. */
export async function transforms(): Promise<Figure[]> {
  const count = 20_000;
  const evaluator = new EvaluatorPool({
    script: new URL("../../roles/evaluatorWorker.js", import.meta.url),
    workers: 1,
    memoryLimitMb: 128,
  });
  const evaluation = {
    lane: "benchmark",
    expression: EXPRESSION,
    input: ORDER,
    bindings: { topic: "orders" },
    timeoutMs: 1000,
    maxDepth: 100,
  };
  const inWorker = async (): Promise<void> => {
    let left = count;
    const lane = async () => {
      while (left-- > 0) await evaluator.evaluate(evaluation);
    };
    await Promise.all(Array.from({ length: 64 }, lane));
  };
  const bare = jsonata(EXPRESSION);
  const inLoop = async (): Promise<void> => {
    for (let n = 0; n < count; n += 1) JSON.stringify(await bare.evaluate(JSON.parse(ORDER), { topic: "orders" }));
  };
  const timed = async (work: () => Promise<void>): Promise<number> => {
    const startedAt = performance.now();
    await work();
    return perSecond(count, performance.now() - startedAt);
  };
  const pairs: { worker: number; loop: number }[] = [];
  for (let round = 0; round <= ROUNDS; round += 1) {
    const pair = { worker: await timed(inWorker), loop: await timed(inLoop) };
    if (round > 0) pairs.push(pair);
  }
  await evaluator.close();
  const ratio = median(pairs.map(({ worker, loop }) => worker / loop));
  return [
    {
      name: "(f) small transforms, 1 kB",
      value: rate(median(pairs.map(({ worker }) => worker))),
      baseline: `${rate(median(pairs.map(({ loop }) => loop)))} JSONata in a loop`,
      ratio,
      target: ">= 0.5",
      met: ratio >= 0.5,
    },
  ];
}

/** (g) The drain of (a) with a destination transform, against the same drain without. */
export async function drainWithTransform(environment: Environment): Promise<Figure[]> {
  const rows = 20_000;
  const receiver = await environment.program("receiver.js", []);
  const settings = { ...BUSY_POLLER, DESTINATIONS_RECEIVER_BASEURL: `http://127.0.0.1:${receiver.port}` };
  const start = async (more: Readonly<Record<string, string>>) => {
    const poller = await environment.svc(["poller"], { ...settings, ...more });
    process.kill(poller.pid, "SIGSTOP");
    return poller;
  };
  const plain = await start({});
  const transforming = await start({ DESTINATIONS_RECEIVER_TRANSFORM_EXPRESSION: EXPRESSION });
  const drainOf = async (poller: typeof plain): Promise<number> => {
    await fillOutbox(environment, rows, 500, { body: ORDER });
    await vacuum(environment);
    return perSecond(rows, await timeDrain(environment, poller));
  };
  const pairs: { plain: number; transformed: number }[] = [];
  for (let round = 0; round <= ROUNDS; round += 1) {
    const pair = { plain: await drainOf(plain), transformed: await drainOf(transforming) };
    if (round > 0) pairs.push(pair);
  }
  for (const poller of [plain, transforming]) process.kill(poller.pid, "SIGCONT");
  for (const program of [plain, transforming, receiver]) await program.stop();
  const ratio = median(pairs.map((pair) => pair.transformed / pair.plain));
  return [
    {
      name: "(g) outbox drain with a destination transform",
      value: rate(median(pairs.map(({ transformed }) => transformed))),
      baseline: `${rate(median(pairs.map((pair) => pair.plain)))} without`,
      ratio,
      target: ">= 0.6",
      met: ratio >= 0.6,
    },
  ];
}
