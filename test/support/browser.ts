import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { afterAll, afterEach, beforeAll, expect } from "@jest/globals";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { toolPath } from "./describeWithTools.ts";

/** Debian's Chromium without a window, and what a page of the console must never do. */

export interface PageOptions {
  readonly scheme?: "light" | "dark";
  /** Of the window, in CSS pixels. */
  readonly width?: number;
  readonly height?: number;
}

export interface BrowserPages {
  /** A page of a browser profile of its own. */
  open(address: string, options?: PageOptions): Promise<Page>;
}

/**
 * A browser for a block of `describeWithTools(["chromium"], ...)`. Each test fails if one of its pages broke the content
 * security policy, logged an error, or sent a request to another host.
 *
 * @param scope whether its pages are closed after each test or after all tests of the block
 */
export function useBrowser(scope: "test" | "block" = "test"): BrowserPages {
  let browser: Browser;
  const contexts: BrowserContext[] = [];
  const faults: string[] = [];
  beforeAll(async () => {
    browser = await chromium.launch({
      executablePath: toolPath("chromium"),
      // As root it has no sandbox; the pages are the project's own.
      args: ["--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb"],
    });
  }, 60_000);
  afterEach(async () => {
    if (scope === "test") for (const context of contexts.splice(0)) await context.close();
    expect(faults.splice(0)).toEqual([]);
  });
  afterAll(async () => await browser?.close());

  return {
    async open(address, { scheme = "light", width = 1280, height = 900 } = {}) {
      const context = await browser.newContext({
        colorScheme: scheme,
        viewport: { width, height },
        reducedMotion: "reduce",
        locale: "en-GB",
        timezoneId: "UTC",
      });
      contexts.push(context);
      const page = await context.newPage();
      page.setDefaultTimeout(15_000);
      await page.addInitScript(REPORT_VIOLATIONS);
      page.on("console", (message) => {
        // A request that fails or is refused is for the page to show.
        if (message.type() === "error" && !/^Failed to load resource: /.test(message.text())) {
          faults.push(`console: ${message.text()}`);
        }
      });
      page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
      const { host } = new URL(address);
      page.on("request", (request) => {
        const url = new URL(request.url());
        if (url.protocol !== "data:" && url.host !== host) faults.push(`request to ${url.host}`);
      });
      await page.goto(address);
      return page;
    },
  };
}

/** Console errors are collected, and so are violations of the policy. */
const REPORT_VIOLATIONS = `document.addEventListener("securitypolicyviolation", (event) =>
  console.error("CSP: " + event.violatedDirective + " " + event.blockedURI))`;

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/**
 * What axe finds wrong on a page, as `rule: the first element`.
 *
 * @param rules the only ones to look for; all when absent
 */
export async function axeFindings(page: Page, rules?: readonly string[]): Promise<readonly string[]> {
  // Navigation within the page leaves it there.
  if (!(await page.evaluate("'axe' in globalThis"))) await page.evaluate(AXE);
  return await page.evaluate(async (only) => {
    const { axe } = globalThis as unknown as { axe: Axe };
    const { violations } = await axe.run(only === undefined ? {} : { runOnly: only });
    return violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes[0]?.html}`);
  }, rules);
}

interface Axe {
  run(options: { readonly runOnly?: readonly string[] }): Promise<{ readonly violations: readonly AxeViolation[] }>;
}

interface AxeViolation {
  readonly id: string;
  readonly help: string;
  readonly nodes: readonly { readonly html: string }[];
}

/** What makes a page scroll sideways; empty when nothing does. */
export async function tooWide(page: Page): Promise<readonly string[]> {
  return await page.evaluate(() => {
    const { document } = globalThis as unknown as { document: BrowserDocument };
    const { scrollWidth, clientWidth } = document.documentElement;
    if (scrollWidth <= clientWidth) return [];
    const wide = [...document.querySelectorAll("*")].filter((each) => each.getBoundingClientRect().right > clientWidth);
    return wide.map((each) => each.outerHTML.slice(0, 120));
  });
}

interface BrowserDocument {
  readonly documentElement: { readonly scrollWidth: number; readonly clientWidth: number };
  querySelectorAll(
    selector: string,
  ): Iterable<{ readonly outerHTML: string; getBoundingClientRect(): { readonly right: number } }>;
}
