import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { credentialsOf, secretsOf } from "../../adapters/sources/http/kind.ts";
import type { InboundAuth } from "../../adapters/sources/http/schema.ts";
import { madeOf } from "../../model/secret.ts";
import type { Clock } from "../../time/clock.ts";

/**
 * Sessions of the console. A session is a text signed with a key that is derived from the admin credentials: every
 * replica accepts it without a table, and other credentials end it. It holds no secret.
 */

const SESSION_COOKIE = "svc_console";
const CSRF_HEADER = "x-csrf-token";
/** A page sends it with what it requests by itself, so that an open page does not keep a session alive. */
const BACKGROUND_HEADER = "x-background";

const IDLE_MS = 30 * 60_000;
const LONGEST_MS = 8 * 60 * 60_000;
/** A cookie is renewed when it is older, not with every request. */
const RENEWED_AFTER_MS = 60_000;
const CODE_MS = 2 * 60_000;

export interface Session {
  readonly id: string;
  /** Who signed in, by their own account; null when they gave no name. */
  readonly by: string | null;
  /** When they signed in, in Unix milliseconds. */
  readonly since: number;
  /** Their last request. */
  readonly seen: number;
}

interface Code {
  readonly nonce: string;
  readonly by: string | null;
  readonly expires: number;
}

/** Makes, reads and ends the sessions of this process's credentials. */
export class Sessions {
  readonly #signer: () => Signer;
  readonly #clock: Pick<Clock, "now">;
  /** Sessions that were signed out here and used codes, with the time at which they end by themselves. */
  readonly #spentIds = new Map<string, number>();

  constructor({ auth, clock }: { readonly auth: InboundAuth; readonly clock: Pick<Clock, "now"> }) {
    this.#signer = madeOf(credentialsOf(auth), () => signer(auth));
    this.#clock = clock;
  }

  /** Signs in. @param by who, for the audit log */
  start(req: IncomingMessage, res: ServerResponse, by: string | null): Session {
    const now = this.#clock.now();
    const session = { id: randomBytes(16).toString("base64url"), by, since: now, seen: now };
    this.#setCookie(req, res, session);
    return session;
  }

  /** The valid session of a request; undefined without one. */
  of(req: IncomingMessage): Session | undefined {
    const session = this.#signer().open<Session>("session", cookieOf(req, SESSION_COOKIE));
    if (session === undefined || this.#spentIds.has(session.id)) return undefined;
    return this.#clock.now() < this.endsAt(session) ? session : undefined;
  }

  /** When it ends unless it is used, in Unix milliseconds. */
  endsAt({ since, seen }: Session): number {
    return Math.min(seen + IDLE_MS, since + LONGEST_MS);
  }

  /** Counts a request of a person as use of the session. */
  renew(req: IncomingMessage, res: ServerResponse, session: Session): void {
    const now = this.#clock.now();
    if (isBackground(req) || now - session.seen < RENEWED_AFTER_MS) return;
    this.#setCookie(req, res, { ...session, seen: now });
  }

  /** Signs out: the browser forgets the session, and this process refuses it. */
  end(req: IncomingMessage, res: ServerResponse, session: Session): void {
    this.#spend(session.id, session.since + LONGEST_MS);
    res.setHeader("Set-Cookie", `${SESSION_COOKIE}=; Max-Age=0${attributes(req)}`);
  }

  /** The token that a state-changing request of the session has to send. */
  csrfToken({ id }: Session): string {
    return this.#signer().mac("csrf", id);
  }

  /** Whether the request carries the CSRF token of the session. */
  hasCsrfToken(req: IncomingMessage, session: Session): boolean {
    const received = req.headers[CSRF_HEADER];
    return typeof received === "string" && this.#signer().isMac(received, "csrf", session.id);
  }

  /** Redeems a one-time code. @returns undefined for a code that is wrong, used or older than two minutes */
  redeem(text: string): { readonly by: string | null } | undefined {
    const code = this.#signer().open<Code>("code", text);
    if (code === undefined || code.expires <= this.#clock.now() || this.#spentIds.has(code.nonce)) return undefined;
    this.#spend(code.nonce, code.expires);
    return { by: code.by };
  }

  #spend(id: string, until: number): void {
    const now = this.#clock.now();
    for (const [each, end] of this.#spentIds) if (end <= now) this.#spentIds.delete(each);
    this.#spentIds.set(id, until);
  }

  #setCookie(req: IncomingMessage, res: ServerResponse, session: Session): void {
    const seconds = Math.ceil((this.endsAt(session) - this.#clock.now()) / 1000);
    const value = this.#signer().seal("session", session);
    res.setHeader("Set-Cookie", `${SESSION_COOKIE}=${value}; Max-Age=${seconds}${attributes(req)}`);
  }
}

/**
 * Makes a one-time code for {@link Sessions.redeem}: for credentials that a browser cannot send, such as signatures.
 *
 * @param by who signs in with it
 * @param now in Unix milliseconds; the code is valid for two minutes
 */
export function createSignInCode(auth: InboundAuth, by: string | null, now: number): string {
  const code: Code = { nonce: randomBytes(16).toString("base64url"), by, expires: now + CODE_MS };
  return signer(auth).seal("code", code);
}

type Signer = ReturnType<typeof signer>;

/** Signs with the newest of the credentials; what another one of them signed still opens. */
function signer(auth: InboundAuth) {
  // Keys of their own: what signs sessions can never be taken for a signature of a request.
  const keys = secretsOf(auth).map((secret) =>
    createHmac("sha256", secret).update(`svc console ${auth.kind}`).digest(),
  );
  const macs = (purpose: string, text: string): readonly string[] =>
    keys.map((key) => createHmac("sha256", key).update(`${purpose}.${text}`).digest("base64url"));
  const mac = (purpose: string, text: string): string => macs(purpose, text)[0] ?? "";
  const isMac = (received: string, purpose: string, text: string): boolean =>
    macs(purpose, text).filter((expected) => sameText(received, expected)).length > 0;
  return {
    mac,
    isMac,
    seal(purpose: string, value: object): string {
      const text = Buffer.from(JSON.stringify(value), "utf8").toString("base64url");
      return `${text}.${mac(purpose, text)}`;
    },
    /** @returns undefined for what this key has not sealed for the purpose */
    open<T>(purpose: string, sealed: string | undefined): T | undefined {
      const [text = "", signature = ""] = (sealed ?? "").split(".");
      if (!isMac(signature, purpose, text)) return undefined;
      return JSON.parse(Buffer.from(text, "base64url").toString("utf8")) as T;
    },
  };
}

/** In a time that depends on the lengths alone. */
function sameText(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a, "utf8"), Buffer.from(b, "utf8")];
  return left.length === right.length && timingSafeEqual(left, right);
}

/** `Secure` only if the browser would keep such a cookie: it came by TLS, as the proxy in front reports. */
function attributes(req: IncomingMessage): string {
  const proxied = String(req.headers["x-forwarded-proto"] ?? "")
    .split(",", 1)[0]
    ?.trim();
  return `; Path=/; HttpOnly; SameSite=Strict${proxied?.toLowerCase() === "https" ? "; Secure" : ""}`;
}

/** Whether the page makes the request by itself. Browsers connect to events again without asking the page. */
function isBackground({ headers }: IncomingMessage): boolean {
  return headers[BACKGROUND_HEADER] !== undefined || headers.accept === "text/event-stream";
}

function cookieOf({ headers }: IncomingMessage, name: string): string | undefined {
  for (const pair of (headers.cookie ?? "").split(";")) {
    const [key = "", value] = pair.split("=", 2);
    if (key.trim() === name) return value?.trim();
  }
  return undefined;
}
