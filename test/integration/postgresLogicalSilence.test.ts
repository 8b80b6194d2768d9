import { expect, test } from "@jest/globals";
import { failOnLeaks } from "../support/leaks.ts";
import { createOutbox, following } from "../support/postgresLog.ts";
import { startTcpProxy } from "../support/tcpProxy.ts";
import { within } from "../support/within.ts";

/** Takes the 15 s in which a silent server is waited for: a file of its own, so that other tests run meanwhile. */

failOnLeaks();

test.each(["cut", "held"] as const)("a connection that is %s ends the follower with a reason", async (mode) => {
  await using outbox = await createOutbox();
  const { database, slot } = outbox;
  const proxy = await startTcpProxy(database);
  try {
    const endpoints = [{ host: "127.0.0.1", port: proxy.port, tls: false as const }];
    await using log = await following(database, slot, null, { endpoints });
    proxy.setMode(mode);
    await expect(within(30_000, "the fault", log.ended)).rejects.toThrow(
      mode === "cut" ? /ECONNRESET|terminated/ : "the server has not answered for 15 s",
    );
  } finally {
    await proxy.close();
  }
});
