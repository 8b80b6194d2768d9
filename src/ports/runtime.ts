/** What the core needs of its process, so that tests can replace it. */

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
 * Something that runs until it is stopped. `stop` may be called before `start`, twice, and during `start`; it returns
 * only when nothing of the service runs. `cutoff` aborts when the time for a graceful stop has passed.
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
  /**
   * Resolves when the component is up.
   *
   * @throws Error with the problem as its message; it is logged, never sent to the caller
   */
  check(signal: AbortSignal): Promise<void>;
}
