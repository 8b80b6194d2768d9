import { type Environment, type Program, receivedBy, until } from "./environment.ts";
import { BUSY_POLLER, fillOutbox, untilSettled, vacuum } from "./outbox.ts";
import { type Figure, median, perSecond, rate } from "./report.ts";

/** Two to four seconds: a poller that cannot keep up calls for help after half a second, and the others hear it in the next one. */
const ROWS = 40_000;
const KEYS = 500;
/** With fewer the machine's swings are larger than the difference. */
const ROUNDS = 8;
const REPLICAS = { one: 1, two: 2, three: 3 } as const;
type Fleet = keyof typeof REPLICAS;

/**
 * (o) The drain of (a) by two and by three replicas, against one: they share the machine, so that nothing is won here; nothing may be lost.
 * With the keys one after the other the first poller mostly keeps them all; at random, all take part.
 */
export async function replicas(environment: Environment): Promise<readonly Figure[]> {
  const receiver = await environment.program("receiver.js", []);
  const programs: Program[] = [];
  for (let n = 0; n < 3; n += 1) {
    programs.push(
      await environment.svc(["poller"], {
        ...BUSY_POLLER,
        DESTINATIONS_RECEIVER_BASEURL: `http://127.0.0.1:${receiver.port}`,
      }),
    );
  }
  for (const { pid } of programs) process.kill(pid, "SIGSTOP");
  const drain = async (count: number, atRandom: boolean): Promise<number> => {
    await fillOutbox(environment, ROWS, KEYS, { atRandom });
    await vacuum(environment);
    const running = programs.slice(0, count);
    for (const { pid } of running) process.kill(pid, "SIGCONT");
    const startedAt = performance.now();
    await untilSettled(environment);
    const took = performance.now() - startedAt;
    for (const { pid } of running) process.kill(pid, "SIGSTOP");
    return perSecond(ROWS, took);
  };
  const figures: Figure[] = [];
  for (const atRandom of [false, true]) {
    const rounds: Record<Fleet, number>[] = [];
    for (let round = 0; round <= ROUNDS; round += 1) {
      const measured = { one: 0, two: 0, three: 0 };
      const turn: readonly Fleet[] = round % 2 === 0 ? ["one", "two", "three"] : ["three", "two", "one"];
      for (const fleet of turn) measured[fleet] = await drain(REPLICAS[fleet], atRandom);
      if (round > 0) rounds.push(measured);
    }
    for (const count of ["two", "three"] as const) {
      const ratio = median(rounds.map((round) => round[count] / round.one));
      figures.push({
        name: `(o) outbox drain by ${count} replicas, keys ${atRandom ? "at random" : "in turn"}`,
        value: rate(median(rounds.map((round) => round[count]))),
        baseline: `${rate(median(rounds.map(({ one }) => one)))} by one`,
        ratio,
        target: ">= 0.9",
        met: ratio >= 0.9,
      });
    }
  }
  for (const { pid } of programs) process.kill(pid, "SIGCONT");
  return figures;
}

/** (p) All rows of one key: one delivery after another, against the bare HTTP client that posts one message after another. */
export async function hotKey(environment: Environment): Promise<readonly Figure[]> {
  const rows = 5000;
  const receiver = await environment.program("receiver.js", []);
  const client = await environment.program("bareProducer.js", [`http://127.0.0.1:${receiver.port}`]);
  const svc = await environment.svc(["poller"], {
    ...BUSY_POLLER,
    DESTINATIONS_RECEIVER_BASEURL: `http://127.0.0.1:${receiver.port}`,
  });
  process.kill(svc.pid, "SIGSTOP");
  const pairs: { svc: number; bare: number }[] = [];
  for (let round = 0; round <= ROUNDS; round += 1) {
    await fillOutbox(environment, rows, 1);
    await vacuum(environment);
    const before = await receivedBy(receiver);
    process.kill(svc.pid, "SIGCONT");
    const startedAt = performance.now();
    await until(async () => (await receivedBy(receiver)) - before >= rows);
    const svcRate = perSecond(rows, performance.now() - startedAt);
    await untilSettled(environment);
    process.kill(svc.pid, "SIGSTOP");
    client.tell(`${rows} 1`);
    const bareMs = Number(await client.line());
    if (round > 0) pairs.push({ svc: svcRate, bare: perSecond(rows, bareMs) });
  }
  process.kill(svc.pid, "SIGCONT");
  const ratio = median(pairs.map((pair) => pair.svc / pair.bare));
  return [
    {
      name: "(p) outbox drain of one key",
      value: rate(median(pairs.map((pair) => pair.svc))),
      baseline: `${rate(median(pairs.map(({ bare }) => bare)))} bare requests one after another`,
      ratio,
      target: ">= 0.4",
      met: ratio >= 0.4,
    },
  ];
}
