import { useEffect, useState } from "preact/hooks";
import { withQuery } from "./api.ts";

/** The page is in the fragment of the address, such as `#/messages?state=dead`: the server serves one page. */

export interface Place {
  /** Such as `["messages", "<id>"]`. */
  readonly path: readonly string[];
  readonly query: URLSearchParams;
}

function currentPlace(): Place {
  const [path = "", query = ""] = window.location.hash.replace(/^#\/?/, "").split("?", 2);
  return { path: path.split("/").map(decoded), query: new URLSearchParams(query) };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The place that the address names; the component is rendered again when it changes. */
export function usePlace(): Place {
  const [place, setPlace] = useState(currentPlace);
  useEffect(() => {
    const onChange = (): void => setPlace(currentPlace());
    window.addEventListener("hashchange", onChange);
    return () => window.removeEventListener("hashchange", onChange);
  }, []);
  return place;
}

/** The address of a page. */
export function link(path: readonly string[], query: Readonly<Record<string, string | undefined>> = {}): string {
  return withQuery(`#/${path.map(encodeURIComponent).join("/")}`, query);
}

export function go(address: string): void {
  window.location.hash = address;
}
