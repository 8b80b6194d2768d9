import { expect, test } from "@jest/globals";
import { useBrowser } from "../../support/browser.ts";
import { describeWithTools } from "../../support/describeWithTools.ts";
import { type ConfigTree, merged, ordersTo, useServices } from "../../support/service.ts";
import { TOKEN } from "./fixture.ts";
import { goTo, signIn } from "./steps.ts";

/** Where is my message, as the console answers: the same situations as of API and command in `trace.test.ts`. */

const services = useServices("block");

describeWithTools(["chromium"], "the page of a message", () => {
  const browser = useBrowser();

  /** A service that receives, and delivers nothing. */
  async function start(overrides: ConfigTree = {}) {
    const [database, receiver] = await Promise.all([services.database(), services.receiver()]);
    const limits = { rateLimit: { perSecond: 1 }, circuitBreaker: {} };
    const admin = { enabled: true, console: true, auth: { type: "bearer", token: TOKEN } };
    const config = merged(ordersTo(receiver, { admin, destinations: { receiver: limits } }), overrides);
    const service = await services.start({ database, config, roles: ["ingest", "admin"] });
    const page = await browser.open(`http://127.0.0.1:${service.port}/console`);
    await signIn(page);
    return { database, service, page };
  }

  test("says that no relay runs, that a filter dropped it, and which message it duplicates", async () => {
    const { service, page } = await start({
      inbox: { relay: { enabled: false } },
      sources: { orders: { filter: { exclude: [{ header: "X-Test", exists: true }] } } },
    });
    const message = { id: "order-4711", key: "k", type: "created" };
    expect((await service.post(message)).status).toBe(202);
    expect((await service.post(message)).json()).toEqual({ status: "duplicate" });
    const dropped = { ...message, id: "order-4712" };
    expect((await service.post(dropped, { headers: { "x-test": "1" } })).json()).toEqual({ status: "filtered" });
    await goTo(page, "#/messages?text=order-4711", "Messages");
    await page.locator("main table a").first().click();
    await page.getByText("inbox.relay.enabled is false").first().waitFor();
    // The journal is written a second later, and the page shows what comes.
    await page.getByText("Received again").first().waitFor();
    await goTo(page, "#/messages?text=order-4712", "Messages");
    await page
      .locator("main")
      .getByText(/filter/)
      .first()
      .waitFor();
  });
});
