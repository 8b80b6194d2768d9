/**
 * The URL of the request: `baseUrl` and `path`, with one slash between them. The default path `/` adds nothing to a
 * base URL with a path of its own (`https://example.com/hook` stays as it is); the query of either is kept.
 */
export function requestUrl(baseUrl: string, path: string): URL {
  const url = new URL(baseUrl);
  const [pathname = "", ...query] = path.split("?");
  const search = [url.search.slice(1), query.join("?")].filter((part) => part !== "").join("&");
  if (pathname !== "/" && pathname !== "")
    url.pathname = `${url.pathname.replace(/\/$/, "")}/${pathname.replace(/^\//, "")}`;
  url.search = search;
  url.hash = "";
  return url;
}
