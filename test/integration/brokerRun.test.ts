import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "@jest/globals";
import { isAlive } from "../../src/dev/embeddedPostgresFiles.ts";
import { requiredKinds } from "../support/brokers/availability.ts";
import { hasProgram, whyUnusable } from "../support/brokers/programs.ts";
import { untilReady } from "../support/brokers/ready.ts";
import { beginBrokerRun, endBrokerRun } from "../support/brokers/run.ts";
import { runFolder, serverFolder } from "../support/brokers/runFolder.ts";
import { endNotedProcesses, type ServerProcess, startServerProcess } from "../support/brokers/serverProcess.ts";
import { once } from "../support/brokers/shared.ts";
import { failOnLeaks } from "../support/leaks.ts";
import { type RunningProcess, useProcesses } from "../support/processes.ts";

/** How servers begin and end with a test run, shown with processes that serve nothing, in the folder of a run of the test's own. */

const WAITS = ["-e", "setInterval(() => {}, 1000)"];
/** A server with a process of its own that its end would not end. */
const SERVER = "sleep 600 & exec sleep 600";

const processes = useProcesses();
const environment = { ...process.env };
let leader: RunningProcess;
let folder = "";

beforeEach(() => {
  leader = processes.node(WAITS, { ownGroup: true });
  folder = mkdtempSync(path.join(tmpdir(), `svc-test-brokers-${leader.pid}-`));
  process.env.SVC_TEST_BROKERS_FOLDER = folder;
});

afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
  process.env = { ...environment };
});

failOnLeaks();

function start(script: string, shared: boolean, place = serverFolder("server")): ServerProcess {
  return startServerProcess({ program: "/bin/sh", args: ["-c", script], env: {}, folder: place, shared });
}

test("a shared server ends when the run that started it is killed", async () => {
  const server = start(SERVER, true);
  leader.kill("SIGKILL");
  await expect(server.ended).rejects.toThrow("it ended with SIGKILL");
});

test("the end of a run ends every server and removes its data", async () => {
  const [shared, own] = [start(SERVER, true), start(SERVER, false)];
  await endBrokerRun();
  await expect(shared.ended).rejects.toThrow("it ended with SIGKILL");
  await expect(own.ended).rejects.toThrow("it ended with SIGKILL");
  expect(existsSync(folder)).toBe(false);
});

test("the next run ends and removes what an interrupted run left, and nothing of a run that goes on", async () => {
  const left = start(SERVER, false);
  const other = processes.node(WAITS);
  const going = mkdtempSync(path.join(tmpdir(), `svc-test-brokers-${other.pid}-`));
  leader.kill("SIGKILL");
  await leader.exited;
  try {
    await beginBrokerRun();
    rmSync(runFolder(), { recursive: true });
    await expect(left.ended).rejects.toThrow("it ended with SIGKILL");
    expect(existsSync(folder)).toBe(false);
    expect(existsSync(going)).toBe(true);
  } finally {
    rmSync(going, { recursive: true });
  }
});

test("a process that got the number of a noted server is left alone", async () => {
  writeFileSync(path.join(serverFolder("server"), "pid"), `${leader.pid} 1`);
  await endNotedProcesses(folder);
  expect(isAlive(leader.pid)).toBe(true);
});

test("a server that ignores the request to end is killed, with all its processes", async () => {
  const place = serverFolder("server");
  const server = start(`trap "" TERM; sleep 600 & touch deaf; while :; do wait; done`, false, place);
  await untilReady("the server", place, server, async () => expect(existsSync(path.join(place, "deaf"))).toBe(true));
  await server.end("SIGTERM", 100);
  await expect(server.ended).rejects.toThrow("it ended with SIGKILL");
});

test("a server that does not come up fails with its exit code and the end of its log", async () => {
  const place = serverFolder("server");
  const server = start("echo first; echo 'the port is taken' >&2; exit 3", false, place);
  const never = () => Promise.reject(new Error("no answer"));
  await expect(untilReady("the server", place, server, never)).rejects.toThrow(
    "the server did not come up: it ended with code 3; the last lines of its log:\nfirst\nthe port is taken",
  );
});

test("a server that cannot start fails once, for everybody who asks for it", async () => {
  let starts = 0;
  const broken = async () => {
    starts++;
    throw new Error("no memory");
  };
  const results = await Promise.allSettled([once("broken", broken), once("broken", broken), once("broken", broken)]);
  expect(results.map((result) => result.status === "rejected" && result.reason.message)).toEqual(
    Array(3).fill("no memory"),
  );
  expect(starts).toBe(1);
});

test("who waits for a server whose starter was killed is told so", async () => {
  leader.kill("SIGKILL");
  await leader.exited;
  writeFileSync(path.join(folder, "nats.lock"), String(leader.pid));
  await expect(once("nats", () => Promise.reject(new Error("started twice")))).rejects.toThrow(
    "the process that was starting the shared nats server has ended",
  );
});

test("SVC_TEST_REQUIRE names kinds of servers, and nothing else", () => {
  process.env.SVC_TEST_REQUIRE = "postgres, kafka";
  expect([...requiredKinds()]).toEqual(["postgres", "kafka"]);
  process.env.SVC_TEST_REQUIRE = "rabbit";
  expect(requiredKinds).toThrow(
    /^SVC_TEST_REQUIRE names rabbit; expected are names of: postgres, .*\bcc\b.*\brabbitmq\b/,
  );
});

test.each([
  ["nats", "nats-server", "nats-server: v2.8.4", "2.8, older than 2.9"],
  ["kafka", "java", 'openjdk version "11.0.21" 2023-10-17', "11.0, older than 17"],
] as const)(
  "a server program that is too old is not used for %s, and the reason names it",
  (kind, name, says, reason) => {
    process.env = { PATH: folder, HOME: folder, SVC_TEST_SERVERS: folder };
    mkdirSync(path.join(folder, "kafka-4.1.1"));
    const program = path.join(folder, name);
    writeFileSync(program, `#!/bin/sh\necho '${says}' >&2`, { mode: 0o755 });
    expect([hasProgram(kind), whyUnusable(kind)]).toEqual([false, `${program} is ${reason}`]);
    writeFileSync(program, `#!/bin/sh\necho '${says.replace(/\d+\.\d+/, "99.0")}'`);
    expect([hasProgram(kind), whyUnusable(kind)]).toEqual([true, undefined]);
  },
);
