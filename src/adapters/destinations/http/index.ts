import { percentDecoded } from "../../../model/secret.ts";
import type { Destination } from "../../../ports/destination.ts";
import type { DestinationTools } from "../../../ports/kinds.ts";
import { InFlight } from "../pendingPublish.ts";
import { createCredentials } from "./auth.ts";
import { Batches } from "./batches.ts";
import { type Channel, HttpDestination, targetOf } from "./delivery.ts";
import type { Lookup } from "./guard.ts";
import { type HttpDestinationConfig, requestUrl } from "./kind.ts";
import { createSigner } from "./signing.ts";
import { createTransport } from "./transport.ts";

type Tools = Pick<DestinationTools, "clock" | "metrics" | "secrets">;

/** What an HTTP destination uses of its process; `secrets` learns its own. */
export interface HttpDestinationEnvironment extends Tools, Readonly<DestinationTools["http"]> {
  /** Most connections to the receiver; further publishes wait for one. */
  readonly connections: number;
  /** Resolves host names; defaults to the system's resolver. */
  readonly lookup?: Lookup;
}

/** A percent-encoded path with its placeholders decoded. */
function withPlaceholders(pathname: string): string {
  return pathname.replace(/%7B%7B.*?%7D%7D/gi, (placeholder) => percentDecoded(placeholder));
}

/** A token request must leave the publish some of its time. */
const MAX_TOKEN_REQUEST_MS = 10_000;

/**
 * @param config static headers and transforms are applied before
 * @throws Error when `auth` holds a value that HTTP cannot carry
 */
export function createHttpDestination(
  config: HttpDestinationConfig,
  environment: HttpDestinationEnvironment,
): Destination {
  const { timeoutMs, auth, allowMetadataAddress, method, batch, signing, tls, proxy } = config;
  const { clock, metrics, maxErrorBodyBytes, secrets, connections } = environment;
  const url = requestUrl(config.baseUrl, config.path);
  const policy = { blockPrivate: environment.blockPrivateAddresses, allowMetadata: allowMetadataAddress };
  const transport = createTransport({ policy, timeoutMs, lookup: environment.lookup, tls, proxy, secrets });
  const tokenTimeoutMs = Math.min(timeoutMs || MAX_TOKEN_REQUEST_MS, MAX_TOKEN_REQUEST_MS);
  const credentials =
    auth === undefined ? null : createCredentials(auth, { clock, transport, timeoutMs: tokenTimeoutMs, secrets });
  const pool = transport.open(url, connections);
  const inFlight = new InFlight();
  const name = `${method} ${url.origin}${withPlaceholders(url.pathname)}`;
  const channel: Channel = {
    pool,
    method,
    origin: url.origin,
    baseUrl: config.baseUrl,
    target: targetOf(url),
    name,
    successStatuses: new Set(config.successStatuses),
    deadStatuses: new Set(config.deadStatuses),
    readsResults: batch !== undefined,
    signer: signing === undefined ? null : createSigner(signing, clock, secrets),
    timeoutMs,
    maxErrorBodyBytes,
    credentials,
    inFlight,
    clock,
    metrics,
    secrets,
  };
  return new HttpDestination(channel, batch && new Batches(batch, channel));
}
