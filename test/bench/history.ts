import { acceptedIn } from "./accepted.ts";
import { type Environment, type Program, receivedBy, until } from "./environment.ts";
import { BUSY_POLLER, fillOutbox, timeDrain, untilSettled, vacuum } from "./outbox.ts";
import { type Figure, median, perSecond, rate } from "./report.ts";

const ROUNDS = 8;
const SETTINGS = ["off", "failures", "all"] as const;
type Setting = (typeof SETTINGS)[number];
/** One round: what each setting reached. */
type Round = Readonly<Record<Setting, number>>;

/**
 * (y) What `outbox.history` costs where nothing fails: three processes that differ in it alone take turns, in an order
 * that changes with each round, so that the machine's drift meets all of them.
 */
export async function history(environment: Environment): Promise<Figure[]> {
  const receiver = await environment.program("receiver.js", []);
  const start = async (roles: readonly string[]) => {
    const programs = new Map<Setting, Program>();
    for (const setting of SETTINGS) {
      const svc = await environment.svc(roles, {
        ...BUSY_POLLER,
        INBOX_RELAY_BATCHSIZE: 500,
        OUTBOX_HISTORY: setting,
        DESTINATIONS_RECEIVER_BASEURL: `http://127.0.0.1:${receiver.port}`,
      });
      process.kill(svc.pid, "SIGSTOP");
      programs.set(setting, svc);
    }
    return programs;
  };

  const pollers = await start(["poller"]);
  const drained = await inTurns(async (setting) => {
    const rows = 20_000;
    await environment.sql.query("TRUNCATE outbox_history");
    await fillOutbox(environment, rows, 500);
    await vacuum(environment);
    return perSecond(rows, await timeDrain(environment, programOf(pollers, setting)));
  });
  await stop(pollers);

  const whole = await start([]);
  const through = await inTurns(async (setting) => {
    const svc = programOf(whole, setting);
    await environment.sql.query("TRUNCATE inbox, outbox, outbox_history");
    await vacuum(environment);
    process.kill(svc.pid, "SIGCONT");
    const sender = await environment.program("sender.js", [svc.port, "/inbox/bench", 128, 500]);
    const before = await receivedBy(receiver);
    const startedAt = performance.now();
    const accepted = await acceptedIn(sender, 4000);
    await until(async () => (await receivedBy(receiver)) - before >= accepted);
    const reached = perSecond(accepted, performance.now() - startedAt);
    await untilSettled(environment);
    await sender.stop();
    process.kill(svc.pid, "SIGSTOP");
    return reached;
  });
  await stop(whole);
  await receiver.stop();
  return [...figures("drain to HTTP", drained), ...figures("HTTP in to HTTP out", through)];
}

async function inTurns(measure: (setting: Setting) => Promise<number>): Promise<readonly Round[]> {
  const rounds: Round[] = [];
  // The first round warms up.
  for (let round = 0; round <= ROUNDS; round += 1) {
    const reached: Record<Setting, number> = { off: 0, failures: 0, all: 0 };
    for (let turn = 0; turn < SETTINGS.length; turn += 1) {
      const setting = SETTINGS[(round + turn) % SETTINGS.length] ?? "off";
      reached[setting] = await measure(setting);
    }
    if (round > 0) rounds.push(reached);
  }
  return rounds;
}

function figures(what: string, rounds: readonly Round[]): readonly Figure[] {
  return (["failures", "all"] as const).map((setting) => {
    const ratio = median(rounds.map((round) => round[setting] / round.off));
    const target = setting === "failures" ? 0.98 : undefined;
    return {
      name: `(y) ${what}, outbox.history: ${setting}`,
      value: rate(median(rounds.map((round) => round[setting]))),
      baseline: `${rate(median(rounds.map(({ off }) => off)))} with off`,
      ratio,
      target: target === undefined ? "" : `>= ${target}`,
      met: target === undefined || ratio >= target,
    };
  });
}

function programOf(programs: ReadonlyMap<Setting, Program>, setting: Setting): Program {
  const program = programs.get(setting);
  if (program === undefined) throw new Error(`no process has outbox.history: ${setting}`);
  return program;
}

async function stop(programs: ReadonlyMap<Setting, Program>): Promise<void> {
  for (const program of programs.values()) {
    process.kill(program.pid, "SIGCONT");
    await program.stop();
  }
}
