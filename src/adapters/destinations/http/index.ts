import { percentDecoded } from "../../../model/secret.ts";
import type { Destination, OutboundMessage } from "../../../ports/destination.ts";
import type { DestinationTools } from "../../../ports/kinds.ts";
import { createCredentials } from "./auth.ts";
import { Batches } from "./batches.ts";
import { type Channel, Delivery, SweptInFlight } from "./delivery.ts";
import { httpError } from "./errors.ts";
import type { Lookup } from "./guard.ts";
import { requestUrl } from "./request.ts";
import type { HttpDestinationConfig } from "./schema.ts";
import { createSigner } from "./signing.ts";
import { createTransport } from "./transport.ts";

type Tools = Pick<DestinationTools, "clock" | "metrics" | "secrets" | "onAnswerEnd">;

/** What an HTTP destination uses of its process; `secrets` learns its own. */
export interface HttpDestinationEnvironment extends Tools, Readonly<DestinationTools["http"]> {
  /** Most connections to the receiver; further publishes wait for one. */
  readonly connections: number;
  /** Resolves host names; defaults to the system's resolver. */
  readonly lookup?: Lookup;
}

/** A path with its placeholders as they were written. */
function withPlaceholders(pathname: string): string {
  return pathname.replace(/%7B%7B.*?%7D%7D/gi, (placeholder) => percentDecoded(placeholder));
}

/** A token request must leave the publish some of its time. */
const MAX_TOKEN_REQUEST_MS = 10_000;

/**
 * An HTTP destination (spec, "HTTP destination"): POSTs the message as body; a 2xx status completes the delivery. A
 * publish that fails after its request was sent is not repeated here (except for a refused token): the row's own retry
 * does that, with backoff.
 *
 * @param config static headers and transforms are applied before
 * @throws Error when `auth` holds a value that HTTP cannot carry
 */
export function createHttpDestination(
  config: HttpDestinationConfig,
  environment: HttpDestinationEnvironment,
): Destination {
  const { timeoutMs, auth, allowMetadataAddress, method, batch, signing, tls, proxy } = config;
  const { clock, metrics, maxErrorBodyBytes, secrets, connections, onAnswerEnd } = environment;
  const url = requestUrl(config.baseUrl, config.path);
  const policy = { blockPrivate: environment.blockPrivateAddresses, allowMetadata: allowMetadataAddress };
  const transport = createTransport({ policy, timeoutMs, lookup: environment.lookup, tls, proxy, secrets });
  const tokenTimeoutMs = Math.min(timeoutMs || MAX_TOKEN_REQUEST_MS, MAX_TOKEN_REQUEST_MS);
  const credentials =
    auth === undefined ? null : createCredentials(auth, { clock, transport, timeoutMs: tokenTimeoutMs, secrets });
  const pool = transport.open(url, connections);
  const inFlight = new SweptInFlight(connections);
  const name = `${method} ${url.origin}${withPlaceholders(url.pathname)}`;
  const targetOf = ({ pathname, search }: URL) => pathname + search;
  const path = targetOf(url);
  const successStatuses = new Set(config.successStatuses);
  const deadStatuses = new Set(config.deadStatuses);
  const channel: Channel = {
    pool,
    method,
    origin: url.origin,
    pathOf: (address) => (address === null ? path : targetOf(requestUrl(config.baseUrl, address))),
    name,
    isSuccess: (status) => (status >= 200 && status < 300) || successStatuses.has(status),
    isDead: (status) => deadStatuses.has(status),
    readsResults: batch !== undefined,
    signer: signing === undefined ? null : createSigner(signing, clock, secrets),
    timeoutMs,
    maxErrorBodyBytes,
    onAnswerEnd,
    credentials,
    inFlight,
    clock,
    metrics,
    secrets,
  };
  const batches = batch && new Batches(batch, channel);
  const publish = (message: OutboundMessage, signal: AbortSignal): Promise<unknown> =>
    batches === undefined ? Delivery.publish(channel, message, signal) : batches.publish(message, signal);
  let closed: Promise<void> | undefined;

  const close = async (): Promise<void> => {
    batches?.flush();
    inFlight.failAll(httpError("closed", `${name}: the destination was closed`));
    await Promise.all([pool.destroy(), credentials?.close()]);
  };

  return {
    async publish(message: OutboundMessage, signal: AbortSignal) {
      signal.throwIfAborted();
      if (closed !== undefined) throw httpError("closed", `${name}: the destination is closed`);
      await publish(message, signal);
    },
    close() {
      closed ??= close();
      return closed;
    },
  };
}
