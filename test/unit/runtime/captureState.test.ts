import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { hostname, tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import type { OwnedState } from "../../../src/ports/capture.ts";
import { captureState } from "../../../src/runtime/captureState.ts";
import { eventually } from "../../support/eventually.ts";
import { failOnLeaks } from "../../support/leaks.ts";
import { builtModule, useProcesses } from "../../support/processes.ts";
import { recordingLog } from "../../support/recorders.ts";
import { within } from "../../support/within.ts";

const SETTINGS = { server: "db.example", port: 5432, slot: "svc_outbox", instance: null };

let directory: string;
let owned: OwnedState[];
const processes = useProcesses();

beforeEach(() => {
  directory = path.join(mkdtempSync(path.join(tmpdir(), "svc-capture-")), "state");
  owned = [];
});
afterEach(async () => {
  for (const state of owned) await state.close();
  rmSync(path.dirname(directory), { recursive: true, force: true });
});
failOnLeaks();

const at = (name: string) => path.join(directory, name);
const names = () => readdirSync(directory).sort();

function setUp(identity = "svc") {
  const { log, lines } = recordingLog();
  const state = captureState({ directory, identity, log });
  const lost: Error[] = [];
  const open = async (settings: Readonly<Record<string, string | number | null>> = SETTINGS) => {
    const opened = await state.open(settings, (error) => lost.push(error));
    owned.push(opened);
    return opened;
  };
  return { open, lines, lost };
}

/** Saves a position as a run of the service would, and ends. */
async function saveOnce(position: string): Promise<void> {
  const state = await setUp().open();
  await state.save(position);
  await state.close();
}

/** Runs a process that holds the state as `state`, with the signal handling of the service around it. */
function holder(body: string) {
  const script = `
    import { captureState } from ${JSON.stringify(builtModule("src/runtime/captureState.ts"))};
    import { handleSignals } from ${JSON.stringify(builtModule("src/runtime/shutdown.ts"))};
    const log = { debug() {}, info() {}, error() {}, warn: (fields) => console.log(JSON.stringify(fields)), child: () => log };
    const alive = setInterval(() => {}, 1000);
    const stop = async () => { clearInterval(alive); console.log("stopped in order"); };
    handleSignals({ log, flush() {}, stop });
    const state = await captureState({ directory: ${JSON.stringify(directory)}, identity: "svc", log })
      .open(${JSON.stringify(SETTINGS)}, (error) => console.log("lost: " + error.message));
    ${body}`;
  return processes.node(["--input-type=module", "-e", script]);
}

/** Makes the lock look as if its owner had not renewed it for so long. */
function age(seconds: number): void {
  const when = Date.now() / 1000 - seconds;
  utimesSync(at("svc.lock"), when, when);
}

describe("the saved position", () => {
  test("is null at first, and the directory is made", async () => {
    const { open, lines } = setUp();
    const state = await open();
    expect(state.position).toBeNull();
    expect(names()).toEqual(["svc.lock", "svc.owner.json"]);
    expect(lines).toEqual([]);
  });

  test("is there for the next owner under the same settings, in whatever order", async () => {
    const { open } = setUp();
    const first = await open();
    await first.save("0/10");
    await first.save("0/20");
    expect(first.position).toBeNull();
    await first.close();

    expect(names()).toEqual(["svc.json"]);
    const { instance, port, server, slot } = SETTINGS;
    expect((await open({ slot, instance, server, port })).position).toBe("0/20");
  });

  test("stands in a file of its owner alone, with a fingerprint in place of the settings", async () => {
    await saveOnce("0/10");
    expect(statSync(at("svc.json")).mode & 0o777).toBe(0o600);
    const text = readFileSync(at("svc.json"), "utf8");
    expect(JSON.parse(text)).toEqual({
      version: 1,
      fingerprint: expect.stringMatching(/^[0-9a-f]{64}$/),
      position: "0/10",
      savedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
    });
    expect(text).not.toContain("db.example");
  });

  test.each([
    ["another server", { ...SETTINGS, server: "other" }],
    ["a setting more", { ...SETTINGS, table: "outbox" }],
    ["a setting less", { server: "db.example", port: 5432, slot: "svc_outbox" }],
    ["a number as text", { ...SETTINGS, port: "5432" }],
  ])("is not used under other settings: %s", async (_, settings) => {
    await saveOnce("0/10");
    const { open, lines } = setUp();
    const state = await open(settings);
    expect(state.position).toBeNull();
    expect(lines).toEqual([
      {
        level: "warn",
        message: expect.stringContaining("starts anew"),
        fields: { file: at("svc.json"), reason: expect.stringContaining("other settings") },
      },
    ]);

    await state.save("0/99");
    await state.close();
    expect((await open(settings)).position).toBe("0/99");
  });

  const valid = { version: 1, fingerprint: "0", position: "0/10", savedAt: "2024-01-01T00:00:00.000Z" };
  test.each([
    ["", "no complete JSON"],
    ['{"version":1,"fingerp', "no complete JSON"],
    ["null", "no JSON object"],
    ["[1]", "no JSON object"],
    [JSON.stringify({ ...valid, version: 2 }), "version 2"],
    [JSON.stringify({ ...valid, version: undefined }), "version none"],
    [JSON.stringify({ ...valid, position: 10 }), "position is missing or not a text"],
    [JSON.stringify({ ...valid, position: "" }), "position is missing or not a text"],
    [JSON.stringify({ ...valid, fingerprint: null }), "fingerprint"],
  ])("in a damaged file is not used, and the next save replaces it: %j", async (text, reason) => {
    mkdirSync(directory);
    writeFileSync(at("svc.json"), text);
    const { open, lines } = setUp();
    const state = await open();
    expect(state.position).toBeNull();
    expect(lines).toEqual([
      expect.objectContaining({
        level: "warn",
        fields: { file: at("svc.json"), reason: expect.stringContaining(reason) },
      }),
    ]);
    await state.save("0/20");
    await state.close();
    expect((await open()).position).toBe("0/20");
  });

  test("outlives a save that a crash cut short, whose file is removed", async () => {
    await saveOnce("0/10");
    writeFileSync(at("svc.4711-00c0ffee.tmp"), '{"version":1,"fing');
    writeFileSync(at("svc_2.4711-00c0ffee.tmp"), "of another identity");
    const { open } = setUp();
    expect((await open()).position).toBe("0/10");
    expect(names()).toEqual(["svc.json", "svc.lock", "svc.owner.json", "svc_2.4711-00c0ffee.tmp"]);
  });

  test("is whole after a kill at any moment, and never older than the last save that ended", async () => {
    const child = holder("for (let n = 1; ; n += 1) { await state.save(String(n)); console.log('saved ' + n); }");
    await child.waitForLine(/saved 20$/);
    child.kill("SIGKILL");
    await child.exited;
    const ended = Number(/saved (\d+)/.exec(child.stdout.at(-1) ?? "")?.[1]);
    age(11);
    const { open, lines } = setUp();
    const position = Number((await open()).position);
    expect([ended, ended + 1]).toContain(position);
    expect(lines).toEqual([]);
  });
});

describe("one owner at a time", () => {
  test("a second one in the same process is refused, and told who owns it", async () => {
    const { open, lost } = setUp();
    const first = await open();
    await expect(setUp().open()).rejects.toThrow(
      new RegExp(
        `^the state of the capture identity svc in ${directory} is owned by process ${process.pid} on host ${hostname()} since ` +
          "20.*Z: one process at a time.*outbox.capture.enabled to false.*outbox.capture.identity and outbox.capture.stateDirectory",
      ),
    );
    await first.save("0/10");
    await first.close();
    expect((await open()).position).toBe("0/10");
    expect(lost).toEqual([]);
  });

  test("a process that was killed is replaced once its lock is stale, not before", async () => {
    const child = holder(`await state.save("0/10"); console.log("holds");`);
    await child.waitForLine(/^holds$/);
    const { open } = setUp();
    await expect(open()).rejects.toThrow(`owned by process ${child.pid} on host`);
    child.kill("SIGKILL");
    await child.exited;
    await expect(open()).rejects.toThrow(`owned by process ${child.pid} on host`);
    age(9);
    await expect(open()).rejects.toThrow("takes over 10 s after its last renewal of the lock");
    age(11);
    expect((await open()).position).toBe("0/10");
    expect(JSON.parse(readFileSync(at("svc.owner.json"), "utf8"))).toMatchObject({ pid: process.pid });
  });

  test("a living process renews its lock", async () => {
    const { open, lost } = setUp();
    await open();
    const takenAt = statSync(at("svc.lock")).mtimeMs;
    await eventually(() => statSync(at("svc.lock")).mtimeMs > takenAt);
    expect(lost).toEqual([]);
  });

  test("a process that ends in order by a signal leaves no lock, and the signal is its own to handle", async () => {
    const child = holder(`console.log("holds");`);
    await child.waitForLine(/^holds$/);
    child.kill("SIGTERM");
    expect(await child.exited).toEqual({ code: 0, signal: null });
    expect(child.stdout.at(-1)).toBe("stopped in order");
    expect(names()).not.toContain("svc.lock");
  });
});

describe("a lost ownership", () => {
  test("is told once, saves nothing more, and leaves what the next owner has", async () => {
    const { open, lost } = setUp();
    const state = await open();
    rmSync(at("svc.lock"), { recursive: true });
    const next = await setUp().open();
    await next.save("0/20");
    const owner = readFileSync(at("svc.owner.json"), "utf8");
    await eventually(() => lost.length > 0);

    expect(lost[0]?.message).toContain(`the ownership of the capture identity svc in ${directory} is lost`);
    await expect(state.save("0/5")).rejects.toThrow("no longer owns the state");
    await state.close();
    expect(readFileSync(at("svc.owner.json"), "utf8")).toBe(owner);
    expect(names()).toEqual(["svc.json", "svc.lock", "svc.owner.json"]);
    await next.close();
    expect((await open()).position).toBe("0/20");
    expect(lost).toHaveLength(1);
  });

  test("is no news after a close, which may come twice", async () => {
    const { open, lost } = setUp();
    const state = await open();
    await state.close();
    await state.close();
    await expect(state.save("0/10")).rejects.toThrow("no longer owns the state");
    expect(names()).toEqual([]);
    expect(lost).toEqual([]);
  });
});

describe("a directory that cannot be used", () => {
  test("is named with the operation and what to do: a file in its place", async () => {
    writeFileSync(directory, "");
    await expect(setUp().open()).rejects.toThrow(
      `change capture cannot make ${directory} (outbox.capture.stateDirectory): EEXIST`,
    );
    await expect(setUp().open()).rejects.toThrow("a file is where the directory should be");
  });

  test("when the saved position cannot be read, and the ownership is given up again", async () => {
    mkdirSync(at("svc.json"), { recursive: true });
    const { open } = setUp();
    await expect(open()).rejects.toThrow(`cannot read ${at("svc.json")} (outbox.capture.stateDirectory): EISDIR`);
    rmSync(at("svc.json"), { recursive: true });
    await within(15_000, "a second try", open());
  });

  test("when the position cannot be saved, and nothing unfinished is left", async () => {
    const state = await setUp().open();
    mkdirSync(at("svc.json"));
    await expect(state.save("0/10")).rejects.toThrow(`cannot save ${at("svc.json")} (outbox.capture.stateDirectory)`);
    expect(names()).toEqual(["svc.json", "svc.lock", "svc.owner.json"]);
  });

  test("when it is gone", async () => {
    const state = await setUp().open();
    rmSync(directory, { recursive: true });
    await expect(state.save("0/10")).rejects.toThrow(
      /ENOENT.*the user of this process \(id \d+\) may read and write.*volume is mounted/,
    );
  });
});
