import { beforeAll, beforeEach, describe, expect, test } from "@jest/globals";
import type { Page } from "playwright-core";
import { axeFindings, useBrowser } from "../../support/browser.ts";
import { describeWithTools } from "../../support/describeWithTools.ts";
import { eventually } from "../../support/eventually.ts";
import { useServices } from "../../support/service.ts";
import { type Furnished, furnish, TOKEN } from "./fixture.ts";
import { goTo, loaded, signIn } from "./steps.ts";

/** Everything that an operator does with the console, with mouse and keyboard. */

const services = useServices("block");

describeWithTools(["chromium"], "an operator", () => {
  // Everything is done on one page, as by somebody who works with it all day.
  const browser = useBrowser("block");
  let furnished: Furnished;
  let page: Page;
  beforeAll(async () => {
    furnished = await furnish(services);
    page = await browser.open(furnished.address);
  });

  const stateOf = async (id: string) =>
    (await furnished.database.query<{ state: string }>("SELECT state FROM outbox WHERE id = $1", [id]))[0]?.state;
  const confirm = (name: string) => page.getByRole("dialog").getByRole("button", { name }).click();
  const notice = (text: string | RegExp) => page.getByRole("status").getByText(text).waitFor();

  /** The page as for somebody who comes anew. */
  const comeAnew = async () => {
    await page.context().clearCookies();
    await page.goto(furnished.address);
    await page.reload();
  };

  describe("who is not signed in", () => {
    beforeEach(comeAnew);

    test("signs in with the token, and out; a wrong token is refused in words", async () => {
      await page.getByLabel("Admin token").fill("wrong");
      await page.getByRole("button", { name: "Sign in" }).click();
      await page.getByRole("alert").getByText("the Bearer token is wrong").waitFor();
      await signIn(page, "alice");
      await page.getByText("alice").waitFor();
      await page.reload();
      await page.getByRole("heading", { name: "Overview" }).waitFor();
      await page.getByRole("button", { name: "Sign out" }).click();
      await page.getByRole("heading", { name: "Sign in" }).waitFor();
      await page.reload();
      await page.getByRole("heading", { name: "Sign in" }).waitFor();
      const stored = await page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])");
      expect(stored).toBe('[{},{},""]');
    });

    test("signs in with a one-time code, with the keyboard alone", async () => {
      const child = services.processes.svc(["console", "sign-in", "--config", furnished.configFile, "--by", "carol"]);
      expect((await child.exited).code).toBe(0);
      await page.getByLabel("With").selectOption("a one-time code");
      await page.getByLabel("One-time code").focus();
      await page.keyboard.type(child.stdout[0] ?? "");
      await page.keyboard.press("Enter");
      await page.getByRole("heading", { name: "Overview" }).waitFor();
      await page.getByText("carol").waitFor();
    });

    test("is led back to the sign-in when the session has ended", async () => {
      await signIn(page);
      await page.context().clearCookies();
      // By its address: the page may have noticed by itself, and its links are gone then.
      await page.evaluate('location.hash = "#/destinations"');
      await page.getByRole("heading", { name: "Sign in" }).waitFor();
    });
  });

  describe("who is signed in", () => {
    beforeAll(async () => {
      await comeAnew();
      await signIn(page, "alice");
    });
    beforeEach(async () => {
      await page.unrouteAll();
      await goTo(page, "#/", "Overview");
    });

    test("pauses and resumes a destination", async () => {
      await goTo(page, "#/destinations", "Destinations");
      await page.getByRole("button", { name: "Pause shipping" }).click();
      expect(await axeFindings(page)).toEqual([]);
      // The dialog closes without a change.
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "detached" });
      await page.getByRole("button", { name: "Pause shipping" }).click();
      await page.getByLabel("Reason").fill("they migrate");
      await page.getByLabel("For").fill("later");
      await confirm("Pause");
      await page.getByRole("alert").getByText("Invalid request").waitFor();
      await page.getByLabel("For").fill("2h");
      await confirm("Pause");
      await notice("shipping is paused.");
      await page.getByText("by alice (admin route): they migrate").waitFor();
      await page.getByRole("button", { name: "Resume shipping" }).click();
      await confirm("Resume");
      await notice("shipping is resumed.");
      await page.getByRole("button", { name: "Pause shipping" }).waitFor();
      await goTo(page, "#/audit", "Audit log");
      for (const action of ["pause", "resume"]) {
        const entry = page.getByRole("row").filter({ has: page.getByRole("cell", { name: action, exact: true }) });
        await entry.getByText("alice (admin route)").waitFor();
        await entry.getByText("shipping").waitFor();
      }
    });

    test("filters failures, discards and retries parked rows", async () => {
      const { database, parked } = furnished;
      const [{ id = "" } = {}] = await database.query<{ id: string }>(
        `INSERT INTO outbox (topic, key, payload, attempt, scheduled_at, last_error)
         SELECT topic, 'customer-24', payload, attempt, scheduled_at, 'answered 404: no such customer'
           FROM outbox WHERE id = $1 RETURNING id`,
        [parked],
      );
      await page.getByRole("link", { name: "Parked", exact: true }).click();
      await page.getByRole("heading", { name: "Failures" }).waitFor();
      await page.getByText("2 reasons in 2 rows.").waitFor();
      await page.getByLabel("Destination").selectOption("billing");
      await page.getByText("No row is dead or parked.").waitFor();
      await page.getByLabel("Destination").selectOption("shipping");
      const group = page.getByRole("listitem").filter({ hasText: "no such customer" });
      await group.getByRole("button", { name: "Discard this row…" }).click();
      await page.getByLabel("Reason").fill("the customer has left");
      await confirm("Discard");
      await notice("1 row discarded.");
      await group.waitFor({ state: "detached" });
      expect(await stateOf(id)).toBe("dead");

      await page.getByRole("button", { name: "Retry all parked…" }).click();
      await page.getByLabel("Topic pattern").fill("nobody.**");
      await confirm("Retry");
      await notice("0 rows due now.");
      await page.getByRole("button", { name: "Retry this row…" }).click();
      await confirm("Retry");
      await notice("1 row due now.");
      await page.getByText("No row is dead or parked.").waitFor();
      const due = "SELECT 1 FROM outbox WHERE id = $1 AND attempt = 0 AND scheduled_at <= now()";
      expect(await database.query(due, [parked])).toHaveLength(1);
    });

    test("finds messages by key, id and filters, and turns the pages", async () => {
      await goTo(page, "#/messages", "Messages");
      await page.getByLabel("Find").fill("customer-17");
      await page.keyboard.press("Enter");
      await page.locator(`a[title="${furnished.retried}"]`).waitFor();
      await loaded(page);
      expect(await page.locator("tbody tr").count()).toBe(1);

      await page.getByLabel("Find").fill("order-4711");
      await page.getByRole("button", { name: "Search" }).click();
      await page.locator(`a[title="${furnished.retried}"]`).click();
      await page.getByRole("heading", { name: "Message", exact: true }).waitFor();
      await page.goBack();
      await page.getByRole("heading", { name: "Messages" }).waitFor();
      expect(await page.getByLabel("Find").inputValue()).toBe("order-4711");

      await page.getByRole("link", { name: "Clear" }).click();
      await page.getByLabel("State").selectOption("sent");
      await page.getByText("More filters").click();
      await page.getByLabel("Topic").fill("payments.received");
      await page.getByRole("button", { name: "Search" }).click();
      await eventually(async () => expect(await page.locator("tbody tr").count()).toBe(14));

      await furnished.database.query(
        "INSERT INTO outbox (topic, payload, state, created_at) SELECT 'many', '{}', 'sent', now() - interval '1 day' - n * interval '1 second' FROM generate_series(1, 60) n",
      );
      await goTo(page, "#/messages?topic=many", "Messages");
      await eventually(async () => expect(await page.locator("tbody tr").count()).toBe(50));
      await page.getByRole("button", { name: "Older" }).click();
      await eventually(async () => expect(await page.locator("tbody tr").count()).toBe(10));
      await page.getByText("Page 2", { exact: true }).waitFor();
      await page.getByRole("button", { name: "Newer" }).click();
      await eventually(async () => expect(await page.locator("tbody tr").count()).toBe(50));
      await goTo(page, `#/messages`, "Messages");
      await page.getByLabel("Find").fill(furnished.sent);
      await page.keyboard.press("Enter");
      await page.getByRole("heading", { name: "Message", exact: true }).waitFor();
    });

    test("replays a message that died in the inbox", async () => {
      const [{ id = "" } = {}] = await furnished.database.query<{ id: string }>(
        `INSERT INTO inbox (source, idempotency_key, payload, state, processed_at, last_error)
         VALUES ('orders', 'died', '{"id":"died","type":"made"}', 'dead', now(), 'the topic template renders empty')
         RETURNING id`,
      );
      await goTo(page, `#/messages/${id}`, "Message");
      await page.getByText("dead in the inbox").waitFor();
      await page.getByRole("button", { name: "Replay" }).click();
      await page.getByRole("dialog").getByText("It passes the filter, attributes and transform").waitFor();
      expect(await page.getByLabel("Deliver to").count()).toBe(0);
      await confirm("Replay");
      await notice("The message is delivered again.");
      expect(await furnished.database.query("SELECT state, event_type FROM inbox WHERE id = $1", [id])).toEqual([
        { state: "pending", event_type: "made" },
      ]);
    });

    test("sees what is wrong with a message, and that there is none", async () => {
      await goTo(page, `#/messages/${furnished.retried}`, "Message");
      for (const text of ["failed 2 of 5 times", "attempt 2", "status_5xx", "order-4711"]) {
        await page.locator("main").getByText(text).first().waitFor();
      }
      await goTo(page, "#/messages/01936f2e-4a5c-7bb0-a1d5-3f0c9b1e2d4f", "Message");
      await page.getByRole("alert").getByText("There is no such message").waitFor();
    });

    test("tries a transform on the payload of a message", async () => {
      await goTo(page, `#/messages/${furnished.retried}`, "Message");
      await page.getByRole("link", { name: "Try a transform on it" }).click();
      await page.getByRole("heading", { name: "Transform playground" }).waitFor();
      await eventually(async () => {
        expect(await page.getByLabel("Payload (JSON)").inputValue()).toContain('"customer": "customer-17"');
      });
      await page.getByLabel("Expression").fill('customer & " " & $topic & " " & $source');
      await page.getByRole("button", { name: "Run" }).click();
      await page.getByText('"customer-17 orders.created orders"').waitFor();
      await page.getByLabel("Expression").fill("(");
      await page.getByRole("button", { name: "Run" }).click();
      await page.getByRole("alert").getByText("Invalid expression").waitFor();
      await page.getByLabel("Payload (JSON)").fill("{");
      await page.getByRole("button", { name: "Run" }).click();
      await page.getByRole("alert").getByText("The payload is not JSON").waitFor();
    });

    test("searches the configuration", async () => {
      await goTo(page, "#/config", "Configuration");
      await page.getByLabel("Only lines with").fill("perSecond");
      await eventually(async () =>
        expect((await page.locator("pre").textContent())?.trim()).toMatch(/^perSecond: 50 .*line \d+$/),
      );
    });

    test("retries, discards and replays one message", async () => {
      const { database, retried, behindParked, sent } = furnished;
      await goTo(page, `#/messages/${retried}`, "Message");
      await page.getByRole("button", { name: "Retry now" }).click();
      await confirm("Retry now");
      await notice("The message is due now.");
      await page.getByText("retried by an operator").waitFor();
      expect(
        await database.query("SELECT 1 FROM outbox WHERE id = $1 AND scheduled_at <= now()", [retried]),
      ).toHaveLength(1);

      await goTo(page, `#/messages/${behindParked}`, "Message");
      await page.getByRole("button", { name: "Discard" }).click();
      await page.getByLabel("Reason").fill("cancelled by the customer");
      await confirm("Discard");
      await notice("The message is discarded.");
      await page.getByText("by alice (admin route)").first().waitFor();
      expect(await stateOf(behindParked)).toBe("dead");

      await goTo(page, `#/messages/${sent}`, "Message");
      await page.getByRole("button", { name: "Replay" }).click();
      // Somebody else was faster: the reason is in the dialog, and nothing changes.
      await database.query("UPDATE outbox SET state = 'pending' WHERE id = $1", [sent]);
      await confirm("Replay");
      await page.getByRole("alert").getByText("The row is pending; only a sent or dead row can be replayed").waitFor();
      await database.query("UPDATE outbox SET state = 'sent', updated_at = now() WHERE id = $1", [sent]);
      await confirm("Replay");
      await notice("The message is delivered again.");
      await page.getByText("replayed", { exact: true }).waitFor();
      expect(await stateOf(sent)).toBe("pending");
    });

    test("replays after a dry run, sees the progress, and cancels", async () => {
      await furnished.database.query(
        `INSERT INTO outbox (topic, payload, state, attempt, updated_at)
         SELECT 'jobs.failed', '{}', 'dead', 5, now() - interval '1 minute' FROM generate_series(1, 40)`,
      );
      await goTo(page, "#/replays?destination=billing", "Replays");
      const start = page.getByRole("button", { name: "Replay…" });
      expect(await start.isDisabled()).toBe(true);
      await page.getByLabel("Topic").fill("jobs.failed");
      await page.getByRole("button", { name: "Dry run" }).click();
      await page.getByText("40 rows", { exact: true }).waitFor();
      expect(await axeFindings(page)).toEqual([]);
      // Another filter needs another dry run.
      await page.getByLabel("Topic").fill("jobs.other");
      expect(await start.isDisabled()).toBe(true);
      await page.getByRole("button", { name: "Dry run" }).click();
      await page.getByText("0 rows", { exact: true }).waitFor();
      expect(await start.isDisabled()).toBe(true);
      await page.getByLabel("Topic").fill("jobs.failed");
      await page.getByRole("button", { name: "Dry run" }).click();
      await page.getByText("40 rows", { exact: true }).waitFor();
      await start.click();
      await page.getByLabel("Rows a second").fill("1");
      await page.getByLabel("Deliver to").selectOption("shipping");
      expect(await axeFindings(page)).toEqual([]);
      await confirm("Start replay");
      await page.getByText(/^[1-9]\d? of 40 moved/).waitFor();
      expect(await axeFindings(page)).toEqual([]);
      await page.getByRole("button", { name: "Cancel" }).click();
      await page.getByText("Cancelled: what has moved stays moved.").waitFor();
      const [{ moved = 0 } = {}] = await furnished.database.query<{ moved: number }>(
        "SELECT count(*)::int AS moved FROM outbox WHERE topic = 'jobs.failed' AND state = 'pending'",
      );
      expect(moved).toBeGreaterThan(0);
      expect(moved).toBeLessThan(40);
      const redirected =
        "SELECT DISTINCT destination AS name FROM outbox WHERE topic = 'jobs.failed' AND state = 'pending'";
      expect(await furnished.database.query(redirected)).toEqual([{ name: "shipping" }]);
      // As if they had been sent: only what the first has left is moved.
      const moving = await furnished.database.query(
        "UPDATE outbox SET state = 'dead', updated_at = now() WHERE topic = 'jobs.failed' AND state = 'pending' RETURNING id",
      );
      const sent = page.waitForRequest(/admin\/replays$/);
      await page.getByRole("button", { name: "Replay the rest" }).click();
      expect((await sent).postDataJSON()).toMatchObject({ topic: "jobs.failed", finishedBefore: expect.any(String) });
      await page.getByText(/^[1-9]\d? of 3\d moved/).waitFor();
      await page.getByRole("button", { name: "Cancel" }).click();
      const twice = "SELECT id FROM outbox WHERE topic = 'jobs.failed' AND state = 'dead' AND attempt = 0";
      expect(await furnished.database.query(twice)).toHaveLength(moving.length);
    });

    test("sees when the service is away, and when the database is", async () => {
      await page.route(/\/admin\//, (route) => route.abort());
      await page.getByRole("link", { name: "Destinations", exact: true }).click();
      await page.getByRole("alert").getByText("The service does not answer").waitFor();
      await page.unroute(/\/admin\//);
      await page.route(/\/admin\/destinations/, (route) =>
        route.fulfill({ status: 500, contentType: "application/json", body: '{"error":"Storage failed"}' }),
      );
      await goTo(page, "#/", "Overview");
      await page.getByRole("link", { name: "Destinations", exact: true }).click();
      await page.getByRole("alert").getByText("The database does not answer").waitFor();
    });
  });

  test("leaves the token in no log", () => {
    expect(furnished.service.process.lines.join("\n")).not.toContain(TOKEN);
  });
});
