import { beforeAll, expect, test } from "@jest/globals";
import type { Page } from "playwright-core";
import { axeFindings, tooWide, useBrowser } from "../../support/browser.ts";
import { describeWithTools } from "../../support/describeWithTools.ts";
import { eventually } from "../../support/eventually.ts";
import { useServices } from "../../support/service.ts";
import { type Furnished, furnish, HIDING, HOSTILE, PLANTED } from "./fixture.ts";
import { goTo, loaded, signIn } from "./steps.ts";

/** Every page of the console: what it shows, to whom it is usable, and what it never has. `useBrowser` holds it to its policy. */

const services = useServices("block");

/** Each page: its address, its heading, and a text that it shows of the furnished service. */
const PAGES: readonly (readonly [string, (furnished: Furnished) => string, string])[] = [
  ["Overview", () => "#/", "shipping is degraded: 1 row is parked"],
  ["Destinations", () => "#/destinations", "of 50/s"],
  ["Destination", () => "#/destinations/shipping", "shipping is degraded: 1 row is parked"],
  ["Messages", () => "#/messages", "orders.created"],
  ["Message", ({ retried }) => `#/messages/${retried}`, "failed, to be tried again"],
  ["Message", ({ hostile }) => `#/messages/${hostile}`, HOSTILE],
  ["Message", ({ expanded }) => `#/messages/${expanded}`, "1 of 2 delivered, 1 dead"],
  ["Message", ({ dead }) => `#/messages/${dead}`, "bad token"],
  ["Failures", () => "#/failures", "unknown article"],
  ["Blocked keys", () => "#/blocked", "customer-23"],
  ["Replays", () => "#/replays", "audit log"],
  ["Transform playground", () => "#/playground", "Run the expression"],
  ["Configuration", () => "#/config", "Secret(***)"],
  ["Audit log", () => "#/audit", "sign-in"],
  ["No such page", () => "#/nowhere", "Go to the overview"],
];

/** How many lines the links, buttons and times in tables have. */
const LINES = `[...new Set([...document.querySelectorAll("main td :is(a, button, time)")].map((each) => {
  const range = document.createRange();
  range.selectNodeContents(each);
  return range.getClientRects().length;
}))]`;

const WIDE = { width: 1280, height: 900 };
const NARROW = { width: 360, height: 740 };

describeWithTools(["chromium"], "the pages of the console", () => {
  const browser = useBrowser();
  let furnished: Furnished;
  beforeAll(async () => {
    furnished = await furnish(services);
  });

  /** Signs in and visits every page. */
  async function visit(page: Page, look: (title: string, page: Page) => Promise<void>): Promise<void> {
    await signIn(page, "alice");
    for (const [title, hash, text] of PAGES) {
      await goTo(page, hash(furnished), title);
      await page.locator("main").getByText(text).first().waitFor({ state: "attached" });
      await look(title, page);
    }
  }

  test("axe finds nothing, nothing is wider than the window, and markup in messages stays text", async () => {
    const page = await browser.open(furnished.address);
    /** In wide and narrow windows, light and dark: dark colours change nothing but contrasts. */
    const findings = async () => {
      const found: unknown[] = [];
      for (const viewport of [WIDE, NARROW]) {
        await page.setViewportSize(viewport);
        await page.emulateMedia({ colorScheme: "light" });
        found.push(...(await axeFindings(page)), ...(await tooWide(page)));
        await page.emulateMedia({ colorScheme: "dark" });
        found.push(...(await axeFindings(page, ["color-contrast"])), ...(await tooWide(page)));
      }
      await page.setViewportSize(WIDE);
      return found;
    };
    expect(await findings()).toEqual([]);
    await visit(page, async (title) => {
      expect([title, await findings(), await page.locator("img").count()]).toEqual([title, [], 0]);
    });
    await goTo(page, `#/messages?key=${encodeURIComponent(HOSTILE)}`, "Messages");
    await page.getByRole("cell", { name: HOSTILE }).first().waitFor();
    expect(await page.locator("body").getAttribute("data-hacked")).toBeNull();
  });

  test.each(["light", "dark"] as const)("the menu of a narrow window, in %s colours", async (scheme) => {
    const page = await browser.open(furnished.address, { scheme, ...NARROW });
    await signIn(page);
    const menu = page.getByRole("button", { name: "Menu" });
    await menu.click();
    await page.getByRole("link", { name: "Audit log" }).click();
    await page.getByRole("heading", { name: "Audit log" }).waitFor();
    await eventually(async () => expect(await menu.getAttribute("aria-expanded")).toBe("false"));
  });

  test("no secret and no hidden field is on a page or in an answer", async () => {
    const hiding = await furnish(services, HIDING);
    const page = await browser.open(hiding.address);
    const answers: Promise<string>[] = [];
    page.on("response", (response) => {
      // That one does not end.
      if (!response.url().endsWith("/admin/events")) answers.push(response.text().catch(() => ""));
    });
    await signIn(page, "alice");
    const shown: string[] = [];
    for (const [title, hash] of PAGES) {
      await goTo(page, hash(hiding), title);
      shown.push(await page.content());
    }
    const texts = [...shown, ...(await Promise.all(answers))];
    // Their places are there.
    expect(texts.join("")).toContain('\\"card\\":{\\"number\\":\\"***\\"}');
    expect(texts.join("")).toContain("answered 401: bad token ***");
    for (const planted of [PLANTED.secret, PLANTED.card]) {
      expect(texts.filter((text) => text.includes(planted))).toEqual([]);
    }
  });

  test("no word of a table is broken in a wide window, and a phone has few screens of messages", async () => {
    const page = await browser.open(furnished.address);
    await signIn(page, "alice");
    for (const width of [1280, 1440]) {
      await page.setViewportSize({ width, height: 900 });
      await goTo(page, "#/destinations", "Destinations");
      expect(await page.evaluate(LINES)).toEqual([1]);
    }
    await page.setViewportSize(NARROW);
    await goTo(page, "#/messages", "Messages");
    await page.locator("main tbody tr").first().waitFor();
    expect(await page.evaluate("document.documentElement.scrollHeight")).toBeLessThan(5 * NARROW.height);
  });

  test("times are in UTC, as in the log", async () => {
    const page = await browser.open(furnished.address);
    await signIn(page, "alice");
    await goTo(page, `#/messages/${furnished.retried}`, "Message");
    const shown = await page.locator("main time").first().textContent();
    expect(shown).toMatch(/^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/);
  });

  test("after navigation the focus is on the heading, and the title names the page", async () => {
    const page = await browser.open(furnished.address);
    await signIn(page, "alice");
    await page.getByRole("link", { name: "Destinations", exact: true }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Destinations" }).waitFor();
    expect(await page.locator("h1:focus").textContent()).toBe("Destinations");
    expect(await page.title()).toBe("Destinations – svc console");
    expect(await page.locator('nav a[aria-current="page"]').textContent()).toBe("Destinations");
    // The next stop of the keyboard is the content.
    await page.locator("main").getByRole("link", { name: "billing" }).waitFor();
    await page.keyboard.press("Tab");
    expect(await page.locator(":focus").evaluate((element) => (element as { tagName: string }).tagName)).toBe("A");
  });

  test("show what comes without being loaded again", async () => {
    const page = await browser.open(furnished.address);
    await signIn(page, "alice");
    await goTo(page, `#/messages/${furnished.behindParked}`, "Message");
    await page.getByText("which is parked").waitFor();
    await furnished.database.query("UPDATE outbox SET state = 'sent', updated_at = now() WHERE id = $1", [
      furnished.behindParked,
    ]);
    await page.getByText("delivered", { exact: true }).waitFor();
    await loaded(page);
  });
});
