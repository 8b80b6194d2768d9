import type { Route } from "../routes.ts";
import { type ConsoleOptions, createConsole } from "./operation.ts";
import { leadToPage, showAsset, showPage } from "./operations/page.ts";
import { showSession, signIn, signOut } from "./operations/session.ts";

/** The console: its page and files, which hold no data, and its sessions. */
export function consoleRoutes(options: ConsoleOptions): readonly Route[] {
  const tools = createConsole(options);
  return [showPage, leadToPage, showAsset, showSession, signIn, signOut].map((routeOf) => routeOf(tools));
}
