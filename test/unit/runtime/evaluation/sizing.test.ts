import { describe, expect, test } from "@jest/globals";
import { workerSizing } from "../../../../src/runtime/evaluation/sizing.ts";

const MEBIBYTE = 1024 * 1024;

describe("the evaluation workers fit", () => {
  test.each([
    ["one processor", 1, 16_384, { workers: 1, memoryLimitMb: 256 }],
    ["two processors", 2, 16_384, { workers: 1, memoryLimitMb: 256 }],
    ["four processors", 4, 16_384, { workers: 3, memoryLimitMb: 256 }],
    ["many processors", 64, 16_384, { workers: 4, memoryLimitMb: 256 }],
    ["a container of 512 MiB on a node of many processors", 64, 512, { workers: 1, memoryLimitMb: 144 }],
    ["a container of 1 GiB", 64, 1024, { workers: 1, memoryLimitMb: 256 }],
    ["a container of 2 GiB", 64, 2048, { workers: 2, memoryLimitMb: 256 }],
    ["a container of 128 MiB", 64, 128, { workers: 1, memoryLimitMb: 64 }],
  ])("%s", (_machine, processors, mebibytes, sizing) => {
    expect(workerSizing({ processors, memory: mebibytes * MEBIBYTE })).toEqual(sizing);
  });

  test("this machine, whatever limit it has", () => {
    const { workers, memoryLimitMb } = workerSizing();
    expect(workers).toBeGreaterThanOrEqual(1);
    expect(memoryLimitMb).toBeGreaterThanOrEqual(64);
  });
});
