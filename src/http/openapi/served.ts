import type { InboundAuth } from "../credentials.ts";

/** What a process serves: from this the document is made. Nothing of it may be secret but the secrets inside `auth`, which are not read. */
export interface ServedApi {
  /** Version of the service. */
  readonly version: string;
  readonly httpPort: number;
  /** Undefined when the operator's routes are on the data port too. */
  readonly managementPort: number | undefined;
  /** `inbox.maxBodyBytes` */
  readonly maxBodyBytes: number;
  /** HTTP sources; empty in a process that takes in no messages over HTTP. */
  readonly sources: readonly ServedSource[];
  /** Undefined when this process has no pull routes. */
  readonly pull: ServedPull | undefined;
  /** Undefined when this process has no admin routes. */
  readonly admin: ServedAdmin | undefined;
}

export interface ServedSource {
  readonly name: string;
  /** The whole path of the route. */
  readonly path: string;
  readonly auth: InboundAuth | undefined;
  readonly consumption: "push" | "pull";
  readonly idempotencyKeyPath: string;
  readonly eventTypePath: string | undefined;
  readonly aggregateIdPath: string | undefined;
  readonly hasFilter: boolean;
  readonly hasTransform: boolean;
  readonly requestsPerMinute: number | undefined;
}

export interface ServedAdmin {
  /** Undefined when no credentials are asked for. */
  readonly auth: InboundAuth | undefined;
  /** Names of the configured destinations. */
  readonly destinations: readonly string[];
  /** Largest body in bytes. */
  readonly maxPayloadBytes: number;
  /** Upper bound of a caller's `timeoutMs`. */
  readonly maxTransformTimeoutMs: number;
}

export interface ServedPull {
  readonly basePath: string;
  /** Names of the sources whose messages are pulled. */
  readonly sources: readonly string[];
  readonly auth: InboundAuth | undefined;
  /** Lease of a claim that names none, in ms. */
  readonly leaseMs: number;
}
