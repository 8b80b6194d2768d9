import { once } from "node:events";
import { createServer } from "node:net";
import { describe, expect, test } from "@jest/globals";
import { eventually } from "../support/eventually.ts";
import { assertNothingLeft, openResources } from "../support/leaks.ts";
import { freePort } from "../support/ports.ts";
import { useProcesses } from "../support/processes.ts";

const processes = useProcesses();

describe("waiting for a condition", () => {
  test("gives what the first passing check returned", async () => {
    let checks = 0;
    const value = await eventually(() => {
      checks += 1;
      if (checks < 3) throw new Error("not yet");
      return checks;
    });
    expect(value).toBe(3);
  });

  test("fails after its time with the last failure and the name of the condition", async () => {
    const never = () => {
      throw new Error("2 rows, expected 3");
    };
    await expect(eventually(never, { timeoutMs: 30, label: "the third row" })).rejects.toThrow(
      "the third row did not hold within 30 ms; last failure: 2 rows, expected 3",
    );
    await expect(eventually(() => false, { timeoutMs: 0 })).rejects.toThrow("the check returned false");
  });
});

describe("looking for leaks", () => {
  test("finds a server that still listens", async () => {
    const before = openResources();
    const server = createServer().listen(await freePort(), "127.0.0.1");
    await once(server, "listening");
    await expect(assertNothingLeft(before, 50)).rejects.toThrow("1 TCPServerWrap");
    server.close();
    await assertNothingLeft(before);
  });
});

describe("a process of a test", () => {
  test("gives lines that have come and lines that will come", async () => {
    const child = processes.node(["-e", 'console.log("one"); setTimeout(() => console.error("two 2"), 50);']);
    expect((await child.waitForLine(/^two (\d)$/))[1]).toBe("2");
    await child.waitForLine(/one/);
    expect(await child.exited).toEqual({ code: 0, signal: null });
    expect([child.stdout, child.stderr]).toEqual([["one"], ["two 2"]]);
  });

  test("tells its last lines when the one waited for does not come", async () => {
    const child = processes.node(["-e", 'console.log("only this"); process.exitCode = 3;']);
    await expect(child.waitForLine(/other/)).rejects.toThrow(/the process ended with 3; the last lines:\nonly this/);
  });

  test("does not see the variables of the developer's shell", async () => {
    process.env.SVC_TEST_SHELL_VARIABLE = "x";
    const child = processes.node(["-e", "console.log(JSON.stringify(Object.keys(process.env)))"], { env: { A: "1" } });
    await child.exited;
    delete process.env.SVC_TEST_SHELL_VARIABLE;
    expect(child.lines.join("")).toContain('"A"');
    expect(child.lines.join("")).not.toContain("SVC_TEST_SHELL_VARIABLE");
  });
});
