import pg from "pg";
import { cellOf } from "../../src/model/cells.ts";
import { acceptedIn } from "./accepted.ts";
import { type Environment, receivedBy, until } from "./environment.ts";
import { type Figure, median, perSecond, rate } from "./report.ts";

const CELLS = 4;
const ROUNDS = 6;
const MS = 10_000;
const KEYS = Array.from({ length: 500 }, (_, n) => `key-${n}`);
const [OF_HANGING, OF_OTHERS] = [true, false].map((isFirst) =>
  KEYS.filter((key) => (cellOf(key, CELLS) === 0) === isFirst).join(","),
);

/** (bb) The rate of the other cells of a process while one hangs, and messages for it arrive. */
export async function hangingCell(environment: Environment): Promise<readonly Figure[]> {
  const { hostname, port, username, password, pathname } = new URL(environment.url);
  const url = `jdbc:postgresql://${hostname}:${port}${pathname}?sslmode=disable`;
  const database = { url, username, password: decodeURIComponent(password), cells: CELLS, migrate: true };
  const receiver = await environment.program("receiver.js", []);
  const settings = {
    OUTBOX_BATCHSIZE: 500,
    OUTBOX_CONCURRENCY: 64,
    INBOX_RELAY_BATCHSIZE: 500,
    DESTINATIONS_RECEIVER_BASEURL: `http://127.0.0.1:${receiver.port}`,
  };
  const svc = await environment.svc([], settings, { database });
  const holder = new pg.Client({ connectionString: environment.url });
  await holder.connect();
  const [toHanging, toOthers] = await Promise.all(
    [OF_HANGING, OF_OTHERS].map((keys) => environment.program("sender.js", [svc.port, "/inbox/bench", 64, keys ?? ""])),
  );
  if (toHanging === undefined || toOthers === undefined) throw new Error("there are two senders");

  let delivered = await receivedBy(receiver);
  const arrived = () => until(async () => (await receivedBy(receiver)) >= delivered);
  const alone = async (): Promise<number> => {
    const startedAt = performance.now();
    const accepted = await acceptedIn(toOthers, MS);
    delivered += accepted;
    await arrived();
    return perSecond(accepted, performance.now() - startedAt);
  };
  const beside = async (): Promise<number> => {
    await holder.query("BEGIN; LOCK TABLE public_0.inbox, public_0.outbox IN ACCESS EXCLUSIVE MODE");
    const held = acceptedIn(toHanging, MS);
    const others = await alone();
    await holder.query("ROLLBACK");
    delivered += await held;
    await arrived();
    return others;
  };

  const rounds: { readonly alone: number; readonly beside: number }[] = [];
  // The first round warms up.
  for (let round = 0; round <= ROUNDS; round += 1) {
    const pair =
      round % 2 === 0
        ? { alone: await alone(), beside: await beside() }
        : await beside().then(async (first) => ({ beside: first, alone: await alone() }));
    if (round > 0) rounds.push(pair);
  }
  await holder.end();
  for (const program of [toHanging, toOthers, svc, receiver]) await program.stop();
  const ratio = median(rounds.map((each) => each.beside / each.alone));
  return [
    {
      name: `(bb) HTTP in to HTTP out, ${CELLS - 1} cells beside a schema that hangs`,
      value: rate(median(rounds.map((each) => each.beside))),
      baseline: `${rate(median(rounds.map((each) => each.alone)))} alone`,
      ratio,
      target: ">= 0.85",
      met: ratio >= 0.85,
    },
  ];
}
