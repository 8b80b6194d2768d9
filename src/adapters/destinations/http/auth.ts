import type { Dispatcher } from "undici";
import { PublishError } from "../../../model/errors.ts";
import { madeOf, type Secret } from "../../../model/secret.ts";
import { HEADER_CONTROL, httpHeaderOctets, parsedJson } from "../../../model/text.ts";
import type { SecretMasker } from "../../../ports/runtime.ts";
import type { Clock } from "../../../time/clock.ts";
import { TimeoutError, withTimeout } from "../../../time/wait.ts";
import type { Credentials } from "./delivery.ts";
import { httpError, publishErrorOf, retryAfterMs } from "./errors.ts";
import type { HttpDestinationAuth } from "./kind.ts";
import type { RequestHeader } from "./signing.ts";
import type { Transport } from "./transport.ts";

/** @throws PublishError `header_invalid` when a header cannot hold a configured value */
export function createCredentials(auth: HttpDestinationAuth, environment: CredentialsEnvironment): Credentials {
  const { secrets } = environment;
  switch (auth.kind) {
    case "basic": {
      return configured(
        madeOf([auth.password], () => {
          const password = auth.password.reveal();
          const encoded = Buffer.from(`${auth.username}:${password}`, "utf8").toString("base64");
          secrets.add(encoded);
          secrets.add(password);
          return { name: "authorization", value: `Basic ${encoded}` };
        }),
      );
    }
    case "bearer":
      return fixedHeader("Authorization", auth.token, secrets, "Bearer ");
    case "api-key":
      return fixedHeader(auth.headerName, auth.key, secrets);
    case "header":
      return fixedHeader(auth.headerName, auth.headerValue, secrets);
    case "oauth2":
      return new TokenCredentials(auth, environment);
    default:
      return auth satisfies never;
  }
}

/** @throws PublishError `header_invalid` when a header cannot hold the value */
function fixedHeader(name: string, secret: Secret, secrets: Pick<SecretMasker, "add">, before = ""): Credentials {
  return configured(
    madeOf([secret], () => {
      const value = secret.reveal();
      secrets.add(value);
      return { name: name.toLowerCase(), value: headerValue(name, before + value) };
    }),
  );
}

/** @param current gives that of the configuration, whose file may change */
function configured(current: () => RequestHeader): Credentials {
  return {
    current,
    fetch: async () => current(),
    refused: () => false,
    close: async () => {},
  };
}

/** A header value as octets. @throws PublishError `header_invalid` for a control character; does not quote the value */
export function headerValue(name: string, value: string): string {
  const control = HEADER_CONTROL.exec(value);
  if (control === null) return httpHeaderOctets(value);
  const code = control[0].charCodeAt(0).toString(16).padStart(4, "0");
  throw httpError(
    "header_invalid",
    `the value of the header ${JSON.stringify(name)} cannot go over HTTP: it holds the control character U+${code.toUpperCase()}`,
  );
}

interface CredentialsEnvironment {
  readonly clock: Clock;
  readonly transport: Transport;
  /** Timeout of a token request, in ms. */
  readonly timeoutMs: number;
  /** Learns what errors must not show. */
  readonly secrets: Pick<SecretMasker, "add">;
}

type OAuth2Auth = Extract<HttpDestinationAuth, { readonly kind: "oauth2" }>;

/** A token is renewed this long before it expires, or after three quarters of a short lifetime. */
const RENEWAL_MARGIN_MS = 30_000;
const RENEWAL_SHARE = 0.75;
/** Pause after a failed background renewal: the old token still works. */
const RENEWAL_PAUSE_MS = 1_000;
/** Lifetime of a token without `expires_in`; a receiver that ends it earlier answers 401, and it is renewed. */
const DEFAULT_LIFETIME_S = 300;
const MAX_ANSWER_BYTES = 65_536;
/** Masked tokens: the current one and some before it, since a late answer may echo an old one. */
const MASKED_TOKENS = 4;

interface Token {
  readonly credential: RequestHeader;
  /** Clock.monotonic(): renew in the background from here on. */
  renewAt: number;
  readonly expiresAt: number;
}

/**
 * OAuth 2.0 client credentials grant (RFC 6749, section 4.4). The client authenticates with `client_id` and
 * `client_secret` in the form (section 2.3.1): the spec defines the request by its form parameters, and common servers
 * accept them. The token is renewed in the background while it is still valid, so that rows do not wait for it and
 * short faults of the token endpoint go unnoticed. At most one token request is in flight.
 */
class TokenCredentials implements Credentials {
  readonly #auth: OAuth2Auth;
  readonly #environment: CredentialsEnvironment;
  readonly #clientSecret: () => string;
  readonly #url: URL;
  readonly #pool: Dispatcher;
  readonly #closing = new AbortController();
  #token: Token | undefined;
  #request: Promise<RequestHeader> | undefined;
  /** Functions that unmask a token, for the last {@link MASKED_TOKENS} of them. */
  readonly #forget: (() => void)[] = [];

  constructor(auth: OAuth2Auth, environment: CredentialsEnvironment) {
    this.#auth = auth;
    this.#environment = environment;
    this.#clientSecret = madeOf([auth.clientSecret], () => {
      const secret = auth.clientSecret.reveal();
      environment.secrets.add(secret);
      return secret;
    });
    this.#url = new URL(auth.tokenUrl);
    this.#pool = environment.transport.open(this.#url, 1);
  }

  current(): RequestHeader | undefined {
    const now = this.#environment.clock.monotonic();
    const token = this.#token;
    if (token === undefined || now >= token.expiresAt) return undefined;
    if (now >= token.renewAt) {
      token.renewAt = now + RENEWAL_PAUSE_MS;
      // The failure surfaces when the old token has expired and rows wait for a new one.
      this.fetch().catch(() => {});
    }
    return token.credential;
  }

  fetch(): Promise<RequestHeader> {
    this.#request ??= this.#renew().finally(() => {
      this.#request = undefined;
    });
    return this.#request;
  }

  refused(sent: RequestHeader): boolean {
    // Rows refused with an older token must not discard its successor.
    if (this.#token?.credential === sent) this.#token = undefined;
    return true;
  }

  async close(): Promise<void> {
    this.#closing.abort(httpError("closed", "the destination was closed"));
    await this.#pool.destroy();
  }

  async #renew(): Promise<RequestHeader> {
    const { clock, timeoutMs } = this.#environment;
    const asked = clock.monotonic();
    try {
      const closing = this.#closing.signal;
      // The client obeys a signal only once it is connected.
      const answer = await withTimeout(timeoutMs, "token", (signal) => this.#exchange(signal), closing);
      this.#token = this.#read(answer, asked);
      return this.#token.credential;
    } catch (error) {
      if (error instanceof TimeoutError)
        throw httpError("token", `${this.#name} was not answered within ${timeoutMs} ms`);
      if (error instanceof PublishError) throw error;
      const { code, message, cause } = publishErrorOf(this.#name, error);
      throw httpError("token", `${message}: ${code}`, { cause });
    }
  }

  async #exchange(signal: AbortSignal): Promise<TokenAnswer> {
    const {
      statusCode,
      headers,
      body: stream,
    } = await this.#pool.request({
      method: "POST",
      origin: this.#url.origin,
      path: this.#url.pathname + this.#url.search,
      headers: { "content-type": "application/x-www-form-urlencoded", accept: "application/json" },
      body: this.#form(),
      signal,
    });
    const chunks: Buffer[] = [];
    let bytes = 0;
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > MAX_ANSWER_BYTES) throw httpError("token", `${this.#name} was answered with more than 64 KiB`);
      chunks.push(chunk);
    }
    const body = parseObject(Buffer.concat(chunks).toString("utf8"));
    return { status: statusCode, retryAfter: headers["retry-after"], body };
  }

  #form(): string {
    const form = new URLSearchParams(this.#auth.extraParams);
    form.set("grant_type", "client_credentials");
    form.set("client_id", this.#auth.clientId);
    form.set("client_secret", this.#clientSecret());
    if (this.#auth.scope !== undefined) form.set("scope", this.#auth.scope);
    return form.toString();
  }

  /** Never quotes the whole answer: it may hold a token. */
  #read({ status, retryAfter, body }: TokenAnswer, asked: number): Token {
    if (status !== 200) {
      const why = [body.error, body.error_description].filter((part) => typeof part === "string").join(": ");
      throw httpError("token", `${this.#name} was answered ${status}${why === "" ? "" : ` (${why})`}`, {
        status: String(status),
        retryAfterMs: retryAfterMs(status, retryAfter, this.#environment.clock.now()),
      });
    }
    const { access_token: token, token_type: type, expires_in: expiresIn } = body;
    if (typeof token !== "string" || !/^[\x21-\x7e]+$/.test(token)) {
      throw httpError("token", `${this.#name} was answered 200, but without a usable access_token`);
    }
    if (typeof type === "string" && type.toLowerCase() !== "bearer") {
      throw httpError("token", `${this.#name} gave a token of type ${JSON.stringify(type)}; only Bearer can be sent`);
    }
    const lifetimeMs = lifetimeSeconds(expiresIn) * 1000;
    this.#forget.push(this.#environment.secrets.add(token));
    if (this.#forget.length > MASKED_TOKENS) this.#forget.shift()?.();
    return {
      credential: { name: "authorization", value: `Bearer ${token}` },
      renewAt: asked + Math.max(lifetimeMs * RENEWAL_SHARE, lifetimeMs - RENEWAL_MARGIN_MS),
      expiresAt: asked + lifetimeMs,
    };
  }

  get #name(): string {
    return `the token request to ${this.#url.origin}${this.#url.pathname}`;
  }
}

interface TokenAnswer {
  readonly status: number;
  readonly retryAfter: string | string[] | undefined;
  readonly body: Readonly<Record<string, unknown>>;
}

/** Seconds as a number or, from some servers, as text. */
function lifetimeSeconds(expiresIn: unknown): number {
  const seconds = typeof expiresIn === "string" && expiresIn.trim() !== "" ? Number(expiresIn) : expiresIn;
  return typeof seconds === "number" && Number.isFinite(seconds) ? Math.max(0, seconds) : DEFAULT_LIFETIME_S;
}

function parseObject(text: string): Readonly<Record<string, unknown>> {
  const value = parsedJson(text);
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}
