import { expect, test } from "@jest/globals";
import { MemoryWatch } from "../support/chaos/memory.ts";
import { unmigrate } from "../support/chaos/migrations.ts";
import { eventually } from "../support/eventually.ts";

const onLinux = process.platform === "linux" ? test : test.skip;

onLinux("a process that takes more memory than allowed is told, with the most that it ever had", async () => {
  const self = { name: "self.1", pid: process.pid };
  const [strict, lenient] = [new MemoryWatch([self], 1), new MemoryWatch([self], 100_000)];
  try {
    await eventually(() => strict.most > 10 && lenient.most > 10);
    expect(strict.wrong()).toEqual([expect.stringMatching(/^self\.1 took \d+ MiB of memory, and 1 MiB are allowed$/)]);
    expect(lenient.wrong()).toEqual([]);
  } finally {
    strict.stop();
    lenient.stop();
  }
});

test("the migrations that make nothing but indexes are taken back, the last one first, and none before them", () => {
  const statements = unmigrate();
  expect(
    statements.every((statement) => /^DROP INDEX IF EXISTS \w+$|^DELETE FROM svc_migrations/.test(statement)),
  ).toBe(true);
  expect(statements.join(";")).not.toMatch(/version = [12]$|version = [12];/);
});
