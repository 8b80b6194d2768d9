import { inspect } from "node:util";

/** A credential that cannot be printed by accident (spec, "Value formats"): only `reveal()` gives the value. */
export class Secret {
  #value: string;
  readonly #users: (() => void)[] = [];
  readonly #file: string | undefined;

  /** @param file from which it was read */
  constructor(value: string, file?: string) {
    this.#value = value;
    this.#file = file;
  }

  get file(): string | undefined {
    return this.#file;
  }

  /** Whether something follows new values; all else has the value of the start. */
  get isFollowed(): boolean {
    return this.#users.length > 0;
  }

  /** @param remake called after each new value; it throws if that cannot be used */
  onRenew(remake: () => void): void {
    this.#users.push(remake);
  }

  /** Gives secrets of one file its new value. @throws Error of a user that cannot use it: all keep their old values */
  static renew(secrets: readonly Secret[], value: string): void {
    const give = (values: readonly string[]) => {
      for (const [index, secret] of secrets.entries()) secret.#value = values[index] ?? "";
      for (const secret of secrets) for (const remake of secret.#users) remake();
    };
    const before = secrets.map((secret) => secret.#value);
    try {
      give(secrets.map(() => value));
    } catch (error) {
      give(before);
      throw error;
    }
  }

  reveal(): string {
    return this.#value;
  }

  toString(): string {
    return this.#value === "" ? "Secret(empty)" : "Secret(***)";
  }

  toJSON(): string {
    return this.toString();
  }

  [inspect.custom](): string {
    return this.toString();
  }
}

/**
 * What is made of secrets, made anew after each new value.
 *
 * @param make throws if a value cannot be used
 * @returns gives the current result
 */
export function madeOf<T>(secrets: readonly Secret[], make: () => T): () => T {
  let made = make();
  for (const secret of secrets) {
    secret.onRenew(() => {
      made = make();
    });
  }
  return () => made;
}

// The password reaches to the last @ before the next URL, since people forget to percent-encode an @ or a slash in it.
const USER_INFO = /(:\/\/)([^\s/:@]*)(:(?:(?!:\/\/)[^\n])*)?@/g;
const PASSWORD_PARAMETER = /([?&;]\s*[\w.]*(?:password|pwd|secret|token)\w*\s*=)(\{(?:[^}]|\}\})*\}?|[^&;]*)/gi;

/**
 * Masks the passwords inside URLs; other text is returned unchanged.
 *
 * @param text a URL of any kind (JDBC, AMQP), a comma-separated list of them, or any other text
 * @returns the text with each password, and each user name without one (a NATS token), as `***`
 */
export function maskUrls(text: string): string {
  return text
    .replaceAll(USER_INFO, (_all, start: string, user: string, password: string | undefined) =>
      password === undefined ? `${start}***@` : `${start}${user}:***@`,
    )
    .replaceAll(PASSWORD_PARAMETER, (_all, name: string) => `${name}***`);
}

/** User info without a scheme in front (`user:password@host`), which people write when they forget it. */
const BARE_USER_INFO = /^([^:@]*):([^\n]*)@|^[^@\n]*@/;
const SCHEME = /[a-z][a-z0-9+.-]*:\/\//i;
/** Connection strings of other clients are lists of words. */
const PASSWORD_WORD = /((?:^|\s)(?:password|pwd|token)\s*=\s*)('[^']*'?|\S+)/gi;

/** As {@link maskUrls}, for a key with a URL or a list of servers, such as `user:password@host` or `password=p`. */
export function maskUrl(text: string): string {
  const { head, tail } = schemeless(text);
  const bare = head.replace(BARE_USER_INFO, (_all, user: string | undefined) =>
    user === undefined ? "***@" : `${user}:***@`,
  );
  return (bare + maskUrls(tail)).replaceAll(PASSWORD_WORD, (_all, name: string) => `${name}***`);
}

/** The passwords that {@link maskUrl} masks, as written and percent-decoded. */
export function passwordsInUrl(text: string): string[] {
  const { head, tail } = schemeless(text);
  const bare = [head, ...head.split(",")].flatMap((each) => {
    const match = BARE_USER_INFO.exec(each.trim());
    return match === null ? [] : [match[2] ?? match[0].slice(0, -1)];
  });
  const words = [...text.matchAll(PASSWORD_WORD)].map((match) => (match[2] ?? "").replaceAll("'", ""));
  return [...[...bare, ...words].flatMap((password) => [password, percentDecoded(password)]), ...passwordsInUrls(tail)];
}

function schemeless(text: string): { readonly head: string; readonly tail: string } {
  const at = text.search(SCHEME);
  return at < 0 ? { head: text, tail: "" } : { head: text.slice(0, at), tail: text.slice(at) };
}

/** The passwords that {@link maskUrls} masks, as written and percent-decoded. */
export function passwordsInUrls(text: string): string[] {
  const userInfo = [...text.matchAll(USER_INFO)].map((match) => match[3]?.slice(1) ?? match[2] ?? "");
  const parameters = [...text.matchAll(PASSWORD_PARAMETER)].map((match) => match[2] ?? "");
  return [...userInfo, ...parameters].flatMap((password) => [password, percentDecoded(password)]);
}

export function percentDecoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
