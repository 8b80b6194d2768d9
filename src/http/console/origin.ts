import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";

/** What a browser reports of the page behind a request. Other clients send none of it. */

/**
 * Why a request may come from a page of another site, which a browser sends with this site's cookies.
 *
 * @returns null when it does not
 */
export function crossSiteRefusal({ method, headers }: IncomingMessage): string | null {
  if (method === "GET" || method === "HEAD") return null;
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
 * browsers may use this machine's name and addresses only.
 *
 * @returns null when it was not
 */
export function foreignHostRefusal({ headers }: IncomingMessage): string | null {
  const isBrowser = headers["sec-fetch-site"] !== undefined || headers.origin !== undefined;
  const name = (headers.host ?? "")
    .toLowerCase()
    .replace(/:\d+$/, "")
    .replace(/^\[(.*)\]$/, "$1");
  if (!isBrowser || name === "localhost" || name.endsWith(".localhost") || isIP(name) !== 0) return null;
  return "with admin.insecure a browser may use localhost or an IP address only: open it that way, or set admin.auth";
}

function hostOf(origin: string): string | undefined {
  return /^https?:\/\/([^/]+)$/i.exec(origin)?.[1]?.toLowerCase();
}
