import { describe, expect, test } from "@jest/globals";
import { workerSizing } from "../../../../src/runtime/evaluation/pool.ts";

const MEBIBYTE = 1024 * 1024;
const SMALLEST = { workers: 1, memoryLimitMb: 64, limitedBy: "memory" };

describe("the evaluation workers fit", () => {
  test.each([
    ["one processor", 1, 16_384, { workers: 1, memoryLimitMb: 256, limitedBy: "processors" }],
    ["two processors", 2, 16_384, { workers: 1, memoryLimitMb: 256, limitedBy: "processors" }],
    ["four processors", 4, 16_384, { workers: 3, memoryLimitMb: 256, limitedBy: "processors" }],
    ["many processors", 64, 16_384, { workers: 4, memoryLimitMb: 256 }],
    ["a container of 512 MiB on a node of many processors", 64, 512, SMALLEST],
    ["a container of 768 MiB", 64, 768, { workers: 1, memoryLimitMb: 164, limitedBy: "memory" }],
    ["a container of 1 GiB", 64, 1024, { workers: 1, memoryLimitMb: 256, limitedBy: "memory" }],
    ["a container of 1.5 GiB", 64, 1536, { workers: 2, memoryLimitMb: 256, limitedBy: "memory" }],
    ["a container of 2 GiB", 64, 2048, { workers: 4, memoryLimitMb: 256 }],
    ["a container of 2 GiB and two processors", 2, 2048, { workers: 1, memoryLimitMb: 256, limitedBy: "processors" }],
    ["a container of 128 MiB", 64, 128, SMALLEST],
  ])("%s", (_machine, processors, mebibytes, sizing) => {
    expect(workerSizing({ processors, memory: mebibytes * MEBIBYTE })).toEqual(sizing);
  });

  test("with all heaps full, one more worker apart and the process itself, from 568 MiB on", () => {
    for (let mebibytes = 568; mebibytes <= 4096; mebibytes++) {
      const { workers, memoryLimitMb } = workerSizing({ processors: 64, memory: mebibytes * MEBIBYTE });
      expect((workers + 1) * (memoryLimitMb + 70) + 300).toBeLessThanOrEqual(mebibytes);
    }
  });
});
