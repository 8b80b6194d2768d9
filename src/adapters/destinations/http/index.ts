import { Pool } from "undici";
import type { Destination, OutboundMessage } from "../../../ports/destination.ts";
import type { Metrics } from "../../../ports/metrics.ts";
import type { SecretMasker } from "../../../ports/runtime.ts";
import type { Clock } from "../../../time/clock.ts";
import { createCredentials } from "./auth.ts";
import { type Channel, Delivery } from "./delivery.ts";
import { httpError } from "./errors.ts";
import { guardedConnector, type Lookup } from "./guard.ts";
import { SweptInFlight } from "./inFlight.ts";
import { requestUrl } from "./requestUrl.ts";
import type { HttpDestinationConfig } from "./schema.ts";

export interface HttpDestinationEnvironment {
  /** `http.maxErrorBodyBytes`. */
  readonly maxErrorBodyBytes: number;
  /** `http.blockPrivateAddresses`. */
  readonly blockPrivateAddresses: boolean;
  readonly clock: Clock;
  readonly metrics: Pick<Metrics, "httpPublishResponse">;
  /** Masks secrets in what receivers answer; learns the destination's own. */
  readonly secrets: SecretMasker;
  /** Most connections to the receiver; further publishes wait for one. */
  readonly connections?: number;
  /** Told of each answer with a 2xx status: whether all of it came, or it had to be cut off because it did not end. */
  readonly onAnswerEnd?: (isWhole: boolean) => void;
  /** Resolves host names; the system's resolver when absent. */
  readonly lookup?: Lookup;
}

const DEFAULT_CONNECTIONS = 256;
/** A token request has to leave the publish some of its time. */
const MAX_TOKEN_REQUEST_MS = 10_000;

/**
 * An HTTP destination (spec, "HTTP destination"): POST with the message as body; a 2xx status completes the delivery.
 *
 * Requests are not pipelined: an answer that never comes would hold up the messages behind it. A publish that fails after
 * its request was sent is not repeated here (but for a refused token): the row's own retry does that, with its backoff.
 *
 * @param config static headers and transforms are applied before it
 * @throws Error when `auth` holds a value that cannot go over HTTP
 */
export function createHttpDestination(
  config: HttpDestinationConfig,
  environment: HttpDestinationEnvironment,
): Destination {
  const { timeoutMs, auth, allowMetadataAddress } = config;
  const { clock, metrics, maxErrorBodyBytes, secrets } = environment;
  const url = requestUrl(config.baseUrl, config.path);
  const policy = {
    blockPrivate: environment.blockPrivateAddresses,
    allowMetadata: allowMetadataAddress,
  };
  const connect = guardedConnector(policy, timeoutMs, environment.lookup);
  const tokenTimeoutMs = Math.min(timeoutMs || MAX_TOKEN_REQUEST_MS, MAX_TOKEN_REQUEST_MS);
  const credentials =
    auth === undefined ? null : createCredentials(auth, { clock, connect, timeoutMs: tokenTimeoutMs, secrets });
  const connections = environment.connections ?? DEFAULT_CONNECTIONS;
  const pool = new Pool(url.origin, {
    connections,
    pipelining: 1,
    connect,
    // The deadline of the publish bounds both; a timer of the client for each would only cost.
    headersTimeout: 0,
    bodyTimeout: 0,
  });
  const inFlight = new SweptInFlight(connections);
  const name = `POST ${url.origin}${url.pathname}`;
  const channel: Channel = {
    pool,
    path: url.pathname + url.search,
    name,
    timeoutMs,
    maxErrorBodyBytes,
    onAnswerEnd: environment.onAnswerEnd ?? (() => {}),
    credentials,
    inFlight,
    clock,
    metrics,
    secrets,
  };
  let closed: Promise<void> | undefined;

  const close = async (): Promise<void> => {
    inFlight.failAll(httpError("closed", `${name}: the destination was closed`));
    await Promise.all([pool.destroy(), credentials?.close()]);
  };

  return {
    async publish(message: OutboundMessage, signal: AbortSignal) {
      signal.throwIfAborted();
      if (closed !== undefined) throw httpError("closed", `${name}: the destination is closed`);
      return Delivery.publish(channel, message, signal);
    },
    close() {
      closed ??= close();
      return closed;
    },
  };
}
