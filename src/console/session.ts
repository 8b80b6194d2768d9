import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { SessionInfo } from "./types.ts";

/** Of the person at the page; pages are rendered only with one. */
export const SessionContext = createContext<SessionInfo | undefined>(undefined);

/** Who makes a change, for its body: the name given at sign-in, if any. */
export function useCaller(): { readonly by?: string } {
  const by = useContext(SessionContext)?.by;
  return by === null || by === undefined ? {} : { by };
}
