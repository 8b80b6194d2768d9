import type { IncomingMessage, ServerResponse } from "node:http";
import { describe, expect, test } from "@jest/globals";
import { crossSiteRefusal, foreignHostRefusal } from "../../../../src/http/console/origin.ts";
import { createSignInCode, type Session, Sessions } from "../../../../src/http/console/sessions.ts";
import { Secret } from "../../../../src/model/secret.ts";
import { ManualClock } from "../../../support/recorders.ts";

const AUTH = { kind: "bearer", token: new Secret("the-token") } as const;
const MINUTE = 60_000;

function requestWith(headers: Readonly<Record<string, string>>, method = "GET"): IncomingMessage {
  return { headers, method } as unknown as IncomingMessage;
}

/** A browser: keeps the cookie and sends it. */
function browser(clock: ManualClock) {
  const sessions = new Sessions({ auth: AUTH, clock });
  let cookie = "";
  const res = {
    setHeader: (_name: string, value: string) => {
      cookie = value.split(";", 1)[0] ?? "";
    },
  } as unknown as ServerResponse;
  const request = (headers: Readonly<Record<string, string>> = {}) => requestWith({ cookie, ...headers });
  return {
    sessions,
    signIn: () => sessions.start(request(), res, "alice"),
    /** Makes a request as the admin routes do. @returns whether the session counts */
    use(headers: Readonly<Record<string, string>> = {}): boolean {
      const req = request(headers);
      const session = sessions.of(req);
      if (session !== undefined) sessions.renew(req, res, session);
      return session !== undefined;
    },
    session: (): Session | undefined => sessions.of(request()),
  };
}

describe("a session", () => {
  test("ends after 30 minutes without use", () => {
    const clock = new ManualClock();
    const { signIn, use } = browser(clock);
    signIn();
    for (let n = 0; n < 3; n++) {
      clock.ms += 29 * MINUTE;
      expect(use()).toBe(true);
    }
    clock.ms += 30 * MINUTE;
    expect(use()).toBe(false);
  });

  test("ends after 8 hours, however much it is used", () => {
    const clock = new ManualClock();
    const { signIn, use } = browser(clock);
    signIn();
    for (let minutes = 0; minutes + 20 < 8 * 60; minutes += 20) {
      clock.ms += 20 * MINUTE;
      expect(use()).toBe(true);
    }
    clock.ms += 20 * MINUTE;
    expect(use()).toBe(false);
  });

  test("is not kept alive by what a page requests by itself", () => {
    const clock = new ManualClock();
    const { signIn, use } = browser(clock);
    signIn();
    clock.ms += 29 * MINUTE;
    expect(use({ "x-background": "1" })).toBe(true);
    expect(use({ accept: "text/event-stream" })).toBe(true);
    clock.ms += 2 * MINUTE;
    expect(use({ "x-background": "1" })).toBe(false);
  });

  test("knows who signed in, and has a CSRF token of its own", () => {
    const clock = new ManualClock();
    const [one, other] = [browser(clock), browser(clock)];
    const session = one.signIn();
    expect(one.session()).toMatchObject({ by: "alice", since: clock.ms });
    expect(one.sessions.csrfToken(session)).not.toBe(other.sessions.csrfToken(other.signIn()));
  });
});

describe("a one-time code", () => {
  test("counts once, for two minutes, for the same credentials, and is no session", () => {
    const clock = new ManualClock();
    const { sessions } = browser(clock);
    const code = createSignInCode(AUTH, "bob", clock.ms);
    expect(sessions.of(requestWith({ cookie: `svc_console=${code}` }))).toBeUndefined();
    expect(sessions.redeem(code)).toEqual({ by: "bob" });
    expect(sessions.redeem(code)).toBeUndefined();

    const others = createSignInCode({ kind: "bearer", token: new Secret("another") }, null, clock.ms);
    expect(sessions.redeem(others)).toBeUndefined();
    const late = createSignInCode(AUTH, null, clock.ms);
    clock.ms += 2 * MINUTE;
    expect(sessions.redeem(late)).toBeUndefined();
  });
});

describe("what a browser reports", () => {
  test.each([
    [{ host: "a:8080" }, true],
    [{ host: "a:8080", origin: "http://a:8080" }, true],
    [{ host: "A.example", origin: "https://a.example", "sec-fetch-site": "same-origin" }, true],
    [{ host: "a:8080", "sec-fetch-site": "none" }, true],
    [{ host: "a:8080", origin: "http://a:9090" }, false],
    [{ host: "a:8080", origin: "null" }, false],
    [{ host: "a:8080", "sec-fetch-site": "same-site" }, false],
    [{ host: "a:8080", "sec-fetch-site": "cross-site" }, false],
  ])("a request with %j is of this site: %p", (headers, isOwn) => {
    for (const method of ["POST", "GET", "HEAD"])
      expect(crossSiteRefusal(requestWith(headers, method)) === null).toBe(isOwn);
  });

  test.each([
    ["localhost:8080", true],
    ["127.0.0.1:8080", true],
    ["[::1]:8080", true],
    ["console.localhost", true],
    ["evil.example", false],
    ["127.0.0.1.evil.example:8080", false],
    ["", false],
  ])("the host %j is of this machine: %p", (host, isOwn) => {
    const signs = [
      { "sec-fetch-site": "same-origin" },
      { origin: `http://${host}` },
      { "user-agent": "Mozilla/5.0 (X11)" },
    ];
    for (const sign of signs) expect(foreignHostRefusal(requestWith({ host, ...sign }), false) === null).toBe(isOwn);
    expect(foreignHostRefusal(requestWith({ host }), false)).toBeNull();
    expect(foreignHostRefusal(requestWith({ host }), true) === null).toBe(isOwn);
  });
});

describe("while a credential is changed", () => {
  const sessionsOf = (clock: ManualClock, ...tokens: readonly string[]) =>
    new Sessions({ auth: { kind: "bearer", tokens: tokens.map((token) => new Secret(token)) }, clock });
  /** Signs in. @returns the cookie */
  function signIn(sessions: Sessions): { readonly cookie: string; readonly session: Session } {
    let cookie = "";
    const setHeader = (_name: string, value: string) => {
      cookie = value.split(";", 1)[0] ?? "";
    };
    const session = sessions.start(requestWith({}), { setHeader } as unknown as ServerResponse, "alice");
    return { cookie, session };
  }

  test("sessions and codes of either count, and those of neither do not", () => {
    const clock = new ManualClock();
    const [old, both, next] = [sessionsOf(clock, "old"), sessionsOf(clock, "new", "old"), sessionsOf(clock, "new")];
    const { cookie, session } = signIn(old);
    const csrf = requestWith({ cookie, "x-csrf-token": old.csrfToken(session) });
    expect([old, both, next].map((sessions) => sessions.of(csrf) !== undefined)).toEqual([true, true, false]);
    expect([old, both, next].map((sessions) => sessions.hasCsrfToken(csrf, session))).toEqual([true, true, false]);
    // New ones are signed with the new credential.
    expect(next.of(requestWith({ cookie: signIn(both).cookie }))).toBeDefined();
    expect(old.of(requestWith({ cookie: signIn(both).cookie }))).toBeUndefined();
    const code = createSignInCode({ kind: "bearer", token: new Secret("old") }, "alice", clock.now());
    expect(next.redeem(code)).toBeUndefined();
    expect(both.redeem(code)).toEqual({ by: "alice" });
  });
});
