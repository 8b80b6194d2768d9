import type { Route } from "../routes.ts";
import { type ConsoleOptions, createConsole } from "./operation.ts";
import { showAsset } from "./operations/asset.ts";
import { leadToPage, showPage } from "./operations/page.ts";
import { showSession } from "./operations/session.ts";
import { signIn } from "./operations/signIn.ts";
import { signOut } from "./operations/signOut.ts";

/** The console: its page and files, which hold no data, and its sessions. */
export function consoleRoutes(options: ConsoleOptions): readonly Route[] {
  const tools = createConsole(options);
  return [showPage, leadToPage, showAsset, showSession, signIn, signOut].map((routeOf) => routeOf(tools));
}
