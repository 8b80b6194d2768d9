import { run } from "graphile-worker";
import { BATCH, CONCURRENCY, poster, ready } from "./peer.mjs";

/** graphile-worker with its local queue and batched completions. Arguments: URL of the database, port of the receiver. */
const [connectionString, port] = process.argv.slice(2);
const post = poster(Number(port));

const runner = await run({
  connectionString,
  maxPoolSize: 10,
  noHandleSignals: true,
  pollInterval: 100,
  taskList: { deliver: (payload) => post(payload.body) },
  preset: {
    worker: {
      connectionString,
      maxPoolSize: 10,
      concurrentJobs: CONCURRENCY,
      pollInterval: 100,
      localQueue: { size: BATCH },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
    },
  },
  // A line of log for each job would be measured too.
  logger: await quiet(),
});
ready(() => runner.stop());

async function quiet() {
  const { Logger } = await import("graphile-worker");
  return new Logger(() => () => {});
}
