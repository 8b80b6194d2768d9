import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";

/** What a browser reports of the page behind a request. Other clients send none of it. */

/** Why a request may come from a page of another site, with this site's cookies; null when it does not. */
export function crossSiteRefusal({ headers }: IncomingMessage): string | null {
  const site = headers["sec-fetch-site"];
  if (site !== undefined && site !== "same-origin" && site !== "none") {
    return `the request comes from another site (Sec-Fetch-Site: ${String(site).slice(0, 20)})`;
  }
  const { origin, host = "" } = headers;
  if (origin === undefined || hostOf(origin) === host.toLowerCase()) return null;
  return "the request comes from another site: its Origin header differs from its Host header; a proxy in front must pass Host on";
}

/**
 * Why a browser may have been led here by a name of another owner (DNS rebinding). Where no credentials are checked,
 * browsers may use this machine's name and addresses only; with the console, which is made for them, everybody.
 *
 * To a plain http:// URL browsers send neither `Sec-Fetch-Site` nor, with a GET, `Origin`, and a page may choose its
 * `User-Agent`.
 *
 * @returns null when it was not
 */
export function foreignHostRefusal({ headers }: IncomingMessage, hasConsole: boolean): string | null {
  const { origin, "sec-fetch-site": site, "user-agent": agent = "" } = headers;
  const isBrowser = hasConsole || site !== undefined || origin !== undefined || agent.startsWith("Mozilla/");
  const name = (headers.host ?? "")
    .toLowerCase()
    .replace(/:\d+$/, "")
    .replace(/^\[(.*)\]$/, "$1");
  if (!isBrowser || name === "localhost" || name.endsWith(".localhost") || isIP(name) !== 0) return null;
  return "with admin.insecure the host may only be localhost or an IP address (for browsers; for everybody with admin.console): use one of them, or set admin.auth";
}

function hostOf(origin: string): string | undefined {
  return /^https?:\/\/([^/]+)$/i.exec(origin)?.[1]?.toLowerCase();
}
