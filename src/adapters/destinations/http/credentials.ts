import type { buildConnector } from "undici";
import type { SecretMasker } from "../../../ports/secretMasker.ts";
import type { Clock } from "../../../time/clock.ts";
import type { AuthHeader } from "./headers.ts";

/** What a request shows to be let in. */
export type Credential = AuthHeader;

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

/** What credentials are made with. */
export interface CredentialsEnvironment {
  readonly clock: Clock;
  readonly connect: buildConnector.connector;
  /** ms, longest time for a token request. */
  readonly timeoutMs: number;
  /** Learns what must not come back out in an error. */
  readonly secrets: Pick<SecretMasker, "add">;
}
