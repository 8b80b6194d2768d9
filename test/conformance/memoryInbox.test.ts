import { describe } from "@jest/globals";
import { MemoryInbox } from "../support/memoryInbox.ts";
import { exerciseInbox } from "./store/inbox.ts";

describe("the inbox in memory of the unit tests", () => {
  exerciseInbox(async () => {
    const inbox = new MemoryInbox();
    return {
      store: { inbox },
      replica: async () => ({ inbox }),
      inboxRows: async () => inbox.rows.map((row) => ({ ...row, processed: row.state === "dead" })),
      async [Symbol.asyncDispose]() {},
    };
  });
});
