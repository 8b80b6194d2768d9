import type { SessionInfo } from "./types.ts";

/** Requests to the service that served the page. Addresses are relative, so that a path prefix of a proxy is kept. */

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

/**
 * @param isBackground the page reads by itself: that does not keep the session alive
 * @throws Error whose message tells a person what to do
 */
export function get<T>(path: string, isBackground = false): Promise<T> {
  return request<T>("GET", path, undefined, isBackground ? { "X-Background": "1" } : {});
}

/** @param body a text is sent unchanged. @throws Error as of {@link get} */
export function post<T>(path: string, body: object | string = {}, headers: HeadersSent = {}): Promise<T> {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return request<T>("POST", path, text, { ...ofChange(), ...headers });
}

const ofChange = (): HeadersSent => ({
  "Content-Type": "application/json",
  ...(csrfToken !== null && { "X-CSRF-Token": csrfToken }),
});

type HeadersSent = Readonly<Record<string, string>>;

async function request<T>(method: string, path: string, body: string | undefined, headers: HeadersSent): Promise<T> {
  return JSON.parse(await (await send(method, path, body, headers)).text()) as T;
}

/** Reads an answer of lines of JSON, until the signal aborts. @throws Error as of {@link get} */
export async function* postForLines<T>(path: string, body: object, signal: AbortSignal): AsyncGenerator<T> {
  const answer = await send("POST", path, JSON.stringify(body), ofChange(), signal);
  let rest = "";
  const decoder = new TextDecoder();
  for (const reader = answer.body?.getReader(); reader !== undefined; ) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = `${rest}${decoder.decode(value, { stream: true })}`.split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) yield JSON.parse(line) as T;
  }
}

async function send(
  method: string,
  path: string,
  body: string | undefined,
  headers: HeadersSent,
  signal: AbortSignal | null = null,
): Promise<Response> {
  const init = { method, headers, signal, ...(body !== undefined && { body }) };
  const answer = await fetch(path, { ...init, cache: "no-store", credentials: "same-origin" }).catch(() => {
    throw new Error("The service does not answer. Check that it runs and that this machine reaches it.");
  });
  if (answer.ok) return answer;
  const text = await answer.text();
  if (answer.status === 401 && !path.startsWith("console/")) onSignedOut();
  throw new Error(advice(answer.status, errorOf(text)));
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
  if (status === 404 && error === "Not found")
    return "This process does not serve that route: run one version everywhere.";
  if (status === 500 && error === "Storage failed") {
    return "The database does not answer or refused the statement. Try again; the log of the service has the details.";
  }
  if (error !== "") return error;
  return `The answer was ${status}. A proxy in front of the service may have sent it: see its log.`;
}

/** A path with the parameters that are not empty. */
export function withQuery(path: string, query: Readonly<Record<string, string | number | undefined>>): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text === "" ? path : `${path}?${text}`;
}
