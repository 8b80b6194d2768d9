import PgBoss from "pg-boss";
import { BATCH, CONCURRENCY, poster, ready } from "./peer.mjs";

/** pg-boss with batch fetch: the next batch is fetched while one is delivered, and completed as a whole. Arguments: URL of the database, port of the receiver. */
const [connectionString, port] = process.argv.slice(2);
const post = poster(Number(port));
const QUEUE = "deliver";

const boss = new PgBoss({ connectionString, max: 10, supervise: false, schedule: false });
boss.on("error", (error) => process.stderr.write(`${error}\n`));
await boss.start();
await boss.createQueue(QUEUE);
let stopping = false;

async function deliver(jobs) {
  const left = jobs.values();
  const worker = async () => {
    for (const job of left) await post(job.data.body);
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
  await boss.complete(
    QUEUE,
    jobs.map(({ id }) => id),
  );
}

async function work() {
  let delivering = Promise.resolve();
  while (!stopping) {
    const jobs = await boss.fetch(QUEUE, { batchSize: BATCH });
    await delivering;
    if (jobs.length === 0) await new Promise((resolve) => setTimeout(resolve, 20));
    else delivering = deliver(jobs);
  }
  await delivering;
}

const working = work();
ready(async () => {
  stopping = true;
  await working;
  await boss.stop({ graceful: false });
});
