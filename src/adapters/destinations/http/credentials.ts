import type { AuthHeader } from "./headers.ts";

/** What a request shows to be let in, and the texts that must not come back out in an error. */
export interface Credential extends AuthHeader {
  readonly secrets: readonly string[];
}

/** A shorter secret is left to the redactor, which looks at word boundaries: to mask each `a` would leave nothing to read. */
const MIN_MASKED_LENGTH = 4;

/** Makes a {@link Credential}; `secrets` in any order. */
export function credential(name: string, value: string, secrets: readonly string[]): Credential {
  const masked = secrets.filter((secret) => secret.length >= MIN_MASKED_LENGTH).sort((a, b) => b.length - a.length);
  return { name, value, secrets: masked };
}

/** Where the credentials of a destination come from. */
export interface Credentials {
  /** The credential to send now; undefined when one has to be fetched first. */
  current(): Credential | undefined;
  /** Fetches a credential; callers share one request. Rejects with PublishError `token`. */
  fetch(): Promise<Credential>;
  /** The receiver answered 401 to this credential. Tells whether another one can be had. */
  refused(credential: Credential): boolean;
  close(): Promise<void>;
}
