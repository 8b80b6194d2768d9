import { describe, expect, test } from "@jest/globals";
import { failOnLeaks } from "../support/leaks.ts";
import { builtModule, type RunningProcess, useProcesses } from "../support/processes.ts";

const processes = useProcesses();
failOnLeaks();

/** Runs a process with log and signal handlers as the service has them; its orderly stop takes until a timer fires. */
function run(body: string): RunningProcess {
  const script = `
    import { write } from "node:fs";
    import { createLog } from ${JSON.stringify(builtModule("src/runtime/log.ts"))};
    import { handleSignals } from ${JSON.stringify(builtModule("src/runtime/shutdown.ts"))};
    const { log, flush } = createLog({ level: "info", roles: ["poller"] });
    const alive = setInterval(() => {}, 1000);
    const stop = async () => { clearInterval(alive); log.info({}, "drained"); };
    handleSignals({ log, flush, stop });
    ${body}`;
  return processes.node(["--input-type=module", "-e", script]);
}

const messages = (child: RunningProcess) => child.stdout.map((line) => (JSON.parse(line) as { msg: string }).msg);

describe("a process of the service", () => {
  test("writes every line before it ends on a signal, with code 0", async () => {
    const child = run(`for (let n = 0; n < 500; n += 1) log.info({ n }, "line"); log.info({}, "ready");`);
    await child.waitForLine(/"ready"/);
    child.kill("SIGTERM");
    expect(await child.exited).toEqual({ code: 0, signal: null });
    const all = messages(child);
    expect(all).toHaveLength(504);
    expect(all.slice(-3)).toEqual(["stopping; a second signal ends the process at once", "drained", "stopped"]);
  });

  test.each([
    ["at the last lines", ""],
    [
      "long before",
      `for (let n = 0; n < 2000; n += 1) log.info({ n }, "line"); await new Promise((done) => write(1, "x", done));`,
    ],
  ])("ends where nobody reads its log any more: %s", async (_when, body) => {
    const child = run(`
      process.once("SIGUSR2", async () => { ${body} process.stderr.write("go\\n"); });
      process.stderr.write("ready\\n");`);
    await child.waitForLine(/^ready$/);
    child.closeOutput();
    child.kill("SIGUSR2");
    await child.waitForLine(/^go$/);
    child.kill("SIGTERM");
    expect(await child.exited).toEqual({ code: 0, signal: null });
  });

  test("shows a line soon even when few are written", async () => {
    const child = run(`log.info({}, "alone");`);
    await child.waitForLine(/"alone"/, 5000);
  });

  test("writes what it had to say when it ends by an exception that nobody caught, with code 1", async () => {
    const child = run(`log.info({}, "before"); setTimeout(() => { throw new Error("broken"); }, 1);`);
    expect(await child.exited).toEqual({ code: 1, signal: null });
    expect(messages(child)).toEqual(["before", "unexpected error: ending the process"]);
    expect(child.stdout.join("")).toContain('"error":{"message":"broken"}');
  });

  test("ends with code 1 by a rejection that nobody caught", async () => {
    const child = run(`Promise.reject(new Error("forgotten"));`);
    expect(await child.exited).toEqual({ code: 1, signal: null });
    expect(child.stdout.join("")).toContain('"error":{"message":"forgotten"}');
  });
});

test("a shared signal may have any number of listeners without a warning", async () => {
  const script = `
    import { sharedController } from ${JSON.stringify(builtModule("src/time/wait.ts"))};
    const { signal } = sharedController();
    for (let n = 0; n < 50; n += 1) signal.addEventListener("abort", () => {});
    console.log("done");`;
  const child = processes.node(["--input-type=module", "-e", script]);
  expect(await child.exited).toEqual({ code: 0, signal: null });
  expect(child.lines).toEqual(["done"]);
});
