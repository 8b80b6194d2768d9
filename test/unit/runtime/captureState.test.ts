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
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "@jest/globals";
import type { OwnedState } from "../../../src/ports/capture.ts";
import { captureState } from "../../../src/runtime/captureState.ts";
import { eventually } from "../../support/eventually.ts";
import { failOnLeaks } from "../../support/leaks.ts";
import { builtModule, useProcesses } from "../../support/processes.ts";
import { recordingLog } from "../../support/recorders.ts";
import { within } from "../../support/within.ts";

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
  const open = async () => {
    const opened = await state.open((error) => lost.push(error));
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
      .open((error) => console.log("lost: " + error.message));
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
    expect(names()).toEqual(["svc.lock"]);
    expect(lines).toEqual([]);
  });

  test("is there for the next owner", async () => {
    const { open } = setUp();
    const first = await open();
    await first.save("0/10");
    await first.save("0/20");
    expect(first.position).toBeNull();
    await first.close();

    expect(names()).toEqual(["svc.json"]);
    expect((await open()).position).toBe("0/20");
  });

  test("stands in a file of its owner alone", async () => {
    await saveOnce("0/10");
    expect(statSync(at("svc.json")).mode & 0o777).toBe(0o600);
    expect(JSON.parse(readFileSync(at("svc.json"), "utf8"))).toEqual({
      position: "0/10",
      savedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
    });
  });

  test.each(["", '{"posit', "null", "[1]", '{"position":10}'])(
    "in a damaged file is not used, and the next save replaces it: %j",
    async (text) => {
      mkdirSync(directory);
      writeFileSync(at("svc.json"), text);
      const { open, lines } = setUp();
      const state = await open();
      expect(state.position).toBeNull();
      expect(lines).toMatchObject([{ level: "warn", fields: { file: at("svc.json") } }]);
      await state.save("0/20");
      await state.close();
      expect((await open()).position).toBe("0/20");
    },
  );

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
  test("a second one in the same process is refused", async () => {
    const { open, lost } = setUp();
    const first = await open();
    await expect(setUp().open()).rejects.toThrow(
      new RegExp(
        `^the state of the capture identity svc in ${directory} is owned by another process: one process at a time.*` +
          "outbox.capture.enabled to false.*outbox.capture.identity and outbox.capture.stateDirectory",
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
    await expect(open()).rejects.toThrow("owned by another process");
    child.kill("SIGKILL");
    await child.exited;
    await expect(open()).rejects.toThrow("owned by another process");
    age(9);
    await expect(open()).rejects.toThrow("takes over 10 s after its last renewal of the lock");
    age(11);
    expect((await open()).position).toBe("0/10");
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
    await eventually(() => lost.length > 0);

    expect(lost[0]?.message).toContain(`the ownership of the capture identity svc in ${directory} is lost`);
    await expect(state.save("0/5")).rejects.toThrow("no longer owns the state");
    await state.close();
    expect(names()).toEqual(["svc.json", "svc.lock"]);
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
    await expect(setUp().open()).rejects.toThrow("no file is in its place");
  });

  test("when the saved position cannot be read, and the ownership is given up again", async () => {
    mkdirSync(at("svc.json"), { recursive: true });
    const { open } = setUp();
    await expect(open()).rejects.toThrow(`cannot read ${at("svc.json")} (outbox.capture.stateDirectory): EISDIR`);
    rmSync(at("svc.json"), { recursive: true });
    await within(15_000, "a second try", open());
  });

  test("when the position cannot be saved", async () => {
    const state = await setUp().open();
    mkdirSync(at("svc.json"));
    await expect(state.save("0/10")).rejects.toThrow(`cannot save ${at("svc.json")} (outbox.capture.stateDirectory)`);
  });

  test("when it is gone", async () => {
    const state = await setUp().open();
    rmSync(directory, { recursive: true });
    await expect(state.save("0/10")).rejects.toThrow(
      /ENOENT.*the user of this process \(id \d+\) may read and write.*volume is mounted/,
    );
  });
});
