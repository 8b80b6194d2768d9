import { once } from "node:events";
import { createServer } from "node:net";
import { describe, expect, test } from "@jest/globals";
import { assertNothingLeft, openResources } from "../support/leaks.ts";
import { freePort } from "../support/ports.ts";

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
