import type { SessionInfo } from "./types.ts";

/** Requests to the service that served the page. Addresses are relative, so that a path prefix of a proxy is kept. */

/** An answer that is not a success; the message tells a person what to do. */
class ApiError extends Error {
  override readonly name = "ApiError";
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

let csrfToken: string | null = null;
let onSignedOut: () => void = () => {};

/** Keeps the token of the session for the requests that change something. */
export function useSession(session: SessionInfo): void {
  csrfToken = session.csrfToken;
}

/** Sets what happens when the service no longer accepts the session. */
export function whenSignedOut(handler: () => void): void {
  onSignedOut = handler;
}

interface RequestOptions {
  /** Sent by the page itself: it does not keep the session alive. */
  readonly isBackground?: boolean;
  readonly headers?: Readonly<Record<string, string>>;
}

/** @throws ApiError */
export function get<T>(path: string, options?: RequestOptions): Promise<T> {
  return request<T>("GET", path, undefined, options);
}

/** @throws ApiError */
export function post<T>(path: string, body: object = {}, options?: RequestOptions): Promise<T> {
  return request<T>("POST", path, JSON.stringify(body), options);
}

/** Sends a body as it is. @throws ApiError */
export async function request<T>(
  method: "GET" | "POST",
  path: string,
  body?: string,
  { isBackground = false, headers = {} }: RequestOptions = {},
): Promise<T> {
  const answer = await fetch(path, {
    method,
    ...(body === undefined ? {} : { body }),
    headers: {
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      ...(csrfToken === null || method === "GET" ? {} : { "X-CSRF-Token": csrfToken }),
      ...(isBackground ? { "X-Background": "1" } : {}),
      ...headers,
    },
    cache: "no-store",
    credentials: "same-origin",
  }).catch(() => {
    throw new ApiError(0, "The service does not answer. Check that it runs and that this machine reaches it.");
  });
  const text = await answer.text();
  if (answer.ok) return JSON.parse(text) as T;
  if (answer.status === 401 && !path.startsWith("console/")) onSignedOut();
  throw new ApiError(answer.status, advice(answer.status, errorOf(text)));
}

/** The answer's own words. A proxy may have answered with a page instead of JSON. */
function errorOf(text: string): string {
  try {
    const { error } = JSON.parse(text) as { error?: unknown };
    return typeof error === "string" ? error : "";
  } catch {
    return "";
  }
}

function advice(status: number, error: string): string {
  if (status === 401) return error === "" ? "The session has ended: sign in again." : error;
  if (status === 404 && error === "Not found")
    return "This process does not serve that route: is it of the same version?";
  if (status === 500 && error === "Storage failed") {
    return "The database does not answer or refused the statement. Try again; the log of the service has the details.";
  }
  if (error !== "") return error;
  return `The answer was ${status}. A proxy in front of the service may have sent it: see its log.`;
}

/** Adds the parameters that are not empty to a path. */
export function withQuery(path: string, query: Readonly<Record<string, string | number | null | undefined>>): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") parameters.set(name, String(value));
  }
  const text = parameters.toString();
  return text === "" ? path : `${path}?${text}`;
}
