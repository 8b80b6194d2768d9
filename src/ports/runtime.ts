/** What the core needs from its process, so that tests can replace it. */

/** Structured log. `fields` must hold no secret and no payload; `message` is a constant text. */
export interface Log {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
  /** A log that adds `fields` to each of its lines. */
  child(fields: object): Log;
}

/**
 * A part that runs until stopped. `stop` may be called before, during and after `start`, and twice; it returns when
 * nothing runs. `cutoff` aborts when the time for a graceful stop is over.
 */
export interface Service {
  readonly name: string;
  start(): Promise<void>;
  stop(cutoff: AbortSignal): Promise<void>;
}

/** One entry of the health body (spec, "GET /health/ready"). */
export interface HealthComponent {
  readonly name: string;
  readonly decidesReadiness: boolean;
  /** Resolves when the component is up. @throws Error with the problem, which is logged and never sent */
  check(signal: AbortSignal): Promise<void>;
}

/** Keeps secrets out of received texts, such as an error body in which a receiver echoes a request. */
export interface SecretMasker {
  /**
   * Masks every known secret in any encoding.
   *
   * @param cut whether the text may end within a secret
   * @param isOurs of our own words (`run svc migrate`): a secret that may be one is masked only in the place of a value
   */
  mask(text: string, cut: boolean, isOurs?: boolean): string;
  /** Adds a secret at run time, such as an access token. @returns removes it again */
  add(secret: string): () => void;
}
