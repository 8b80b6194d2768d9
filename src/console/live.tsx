import { type ComponentChildren, createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import { get } from "./api.ts";
import type { Overview } from "./types.ts";

/** What comes by itself: the overview, by server-sent events. */
export interface Live {
  /** Undefined until the first one came. */
  readonly overview: Overview | undefined;
  readonly state: "connecting" | "live" | "unavailable";
  /** Grows with each event: pages that show other data read it again. */
  readonly beat: number;
}

const LiveContext = createContext<Live>({ overview: undefined, state: "connecting", beat: 0 });

export const useLive = (): Live => useContext(LiveContext);

const RECONNECT_MS = 5000;

/** Names to choose from. */
export type Options = readonly (readonly [value: string, text: string])[];

/** The destinations, or the sources, as they came with the overview. */
export function useNames(of: "destinations" | "sources"): Options {
  return (useLive().overview?.[of] ?? []).map(({ name }) => [name, name] as const);
}

/** Follows the events while it is rendered. */
export function LiveProvider({ children }: { readonly children: ComponentChildren }) {
  const [live, setLive] = useState<Live>({ overview: undefined, state: "connecting", beat: 0 });
  useEffect(() => {
    let source: EventSource;
    let retry: ReturnType<typeof setTimeout> | undefined;
    const connect = (): void => {
      source = new EventSource("admin/events");
      source.addEventListener("overview", (event: MessageEvent<string>) => {
        const overview = JSON.parse(event.data) as Overview;
        setLive((before) => ({ overview, state: "live", beat: before.beat + 1 }));
      });
      source.addEventListener("unavailable", () => {
        setLive((before) => ({ ...before, state: "unavailable", beat: before.beat + 1 }));
      });
      source.addEventListener("error", () => {
        setLive((before) => ({ ...before, state: "connecting" }));
        // The browser connects again by itself, except after an answer that is not 200.
        if (source.readyState !== EventSource.CLOSED) return;
        // A session that has ended shows in this request, and leads to the page for signing in.
        void get("admin/config", true).catch(() => {});
        retry = setTimeout(connect, RECONNECT_MS);
      });
    };
    connect();
    return () => {
      clearTimeout(retry);
      source.close();
    };
  }, []);
  return <LiveContext.Provider value={live}>{children}</LiveContext.Provider>;
}
