import type { Page } from "playwright-core";
import { TOKEN } from "./fixture.ts";

/** Signs in on the page that asks for it, and waits for the overview. */
export async function signIn(page: Page, by = ""): Promise<void> {
  await page.getByLabel("Admin token").fill(TOKEN);
  await page.getByLabel("Your name").fill(by);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
}

/** Goes to a page of the console as its links do. */
export async function goTo(page: Page, hash: string, title: string): Promise<void> {
  await page.evaluate(`window.location.hash = ${JSON.stringify(hash)}`);
  await page.getByRole("heading", { level: 1, name: title }).waitFor();
  await loaded(page);
}

/** Waits until nothing loads any more. */
export async function loaded(page: Page): Promise<void> {
  await page.getByText("Loading…").first().waitFor({ state: "detached" });
}
