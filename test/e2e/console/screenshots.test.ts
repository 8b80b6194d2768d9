import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { beforeAll, expect, test } from "@jest/globals";
import type { Page } from "playwright-core";
import { type PageOptions, useBrowser } from "../../support/browser.ts";
import { describeWithTools } from "../../support/describeWithTools.ts";
import { pathOf, read } from "../../support/repository.ts";
import { useServices } from "../../support/service.ts";
import { type Furnished, furnish } from "./fixture.ts";
import { goTo, signIn } from "./steps.ts";

/** The screenshots of docs/console.md: `npm run screenshots` makes them anew, a plain run checks that they can be made. */

const FOLDER = pathOf("docs/console");
const UPDATES = process.env.UPDATE_DOCS === "1";

interface Shot {
  readonly name: string;
  readonly title: string;
  readonly hash: (furnished: Furnished) => string;
  readonly options?: PageOptions;
  readonly prepare?: (page: Page) => Promise<void>;
}

const SHOTS: readonly Shot[] = [
  { name: "overview", title: "Overview", hash: () => "#/" },
  {
    name: "message",
    title: "Message",
    hash: ({ retried }) => `#/messages/${retried}`,
    options: { scheme: "dark", height: 760 },
  },
  {
    name: "messages-phone",
    title: "Messages",
    hash: () => "#/messages?state=dead",
    options: { width: 360, height: 740 },
  },
];

describeWithTools(["chromium"], "the screenshots", () => {
  const services = useServices("block");
  const browser = useBrowser();
  let furnished: Furnished;
  beforeAll(async () => {
    furnished = await furnish(services);
    await furnished.database.query("DELETE FROM outbox WHERE id = $1", [furnished.hostile]);
  });

  test.each(SHOTS)("$name", async ({ name, title, hash, options = {}, prepare }) => {
    const page = await browser.open(furnished.address, { height: 800, width: 1280, ...options });
    await signIn(page, "alice");
    await goTo(page, hash(furnished), title);
    await prepare?.(page);
    const image = await page.screenshot({ animations: "disabled" });
    // A PNG begins so; a page without content compresses to almost nothing.
    expect(image.subarray(1, 4).toString()).toBe("PNG");
    expect(image.length).toBeGreaterThan(10_000);
    if (UPDATES) writeFileSync(path.join(FOLDER, `${name}.png`), image);
  });

  test("in docs are these, small, and used", () => {
    const files = readdirSync(FOLDER);
    expect(files.toSorted()).toEqual(SHOTS.map(({ name }) => `${name}.png`).toSorted());
    const bytes = files.reduce((sum, file) => sum + statSync(path.join(FOLDER, file)).size, 0);
    expect(bytes).toBeLessThan(600_000);
    const page = read("docs/console.md");
    for (const file of files) expect(page).toContain(`console/${file}`);
    for (const file of files) expect(readFileSync(path.join(FOLDER, file)).subarray(1, 4).toString()).toBe("PNG");
  });
});
