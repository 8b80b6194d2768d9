import { readFileSync } from "node:fs";
import type { ConnectionOptions } from "node:tls";

interface PostgresTarget {
  readonly hosts: readonly { readonly host: string; readonly port: number }[];
  readonly sslMode: "disable" | "allow" | "prefer" | "require" | "verify-ca" | "verify-full";
  /** Files in PEM format. */
  readonly sslRootCert: string | undefined;
  readonly sslCert: string | undefined;
  readonly sslKey: string | undefined;
}

export interface Endpoint {
  readonly host: string;
  readonly port: number;
  readonly tls: ConnectionOptions | false;
}

/**
 * In the order of the tries: `prefer` and `allow` try each host both with and without TLS (PostgreSQL documentation,
 * "SSL Mode Descriptions").
 *
 * @throws Error that names the certificate file that cannot be read
 */
export function endpointsOf(target: PostgresTarget): readonly Endpoint[] {
  const modes = tlsModes(target);
  return target.hosts.flatMap(({ host, port }) => modes.map((tls) => ({ host, port, tls })));
}

/**
 * New connections go to the endpoint that worked last, then on in order. A process leaves a server only when it refuses
 * connections or writes: if two servers take writes, its own is the right one.
 */
export class EndpointChoice {
  readonly #endpoints: readonly Endpoint[];
  #index = 0;
  #successes = 0;

  /** @param endpoints at least one */
  constructor(endpoints: readonly Endpoint[]) {
    this.#endpoints = endpoints;
  }

  get count(): number {
    return this.#endpoints.length;
  }

  get current(): Endpoint {
    const endpoint = this.#endpoints[this.#index];
    if (endpoint === undefined) throw new Error("a pool needs at least one endpoint");
    return endpoint;
  }

  /**
   * Begins an attempt at the current endpoint.
   *
   * @returns to call when it has failed, with whether at a standby: the next endpoint is due, unless another attempt has
   *   failed, or succeeded, in the meantime. A server that refused the first of several may have been promoted before it
   *   refused the last
   */
  attempt(): (isStandby: boolean) => void {
    const [endpoint, successes] = [this.current, this.#successes];
    return (isStandby) => {
      if (this.#successes === successes) this.leave(endpoint, isStandby);
    };
  }

  /** A new connection to this endpoint takes writes. */
  works(endpoint: Endpoint): void {
    this.#index = this.#endpoints.indexOf(endpoint);
    this.#successes += 1;
  }

  /** Goes to the next endpoint if this is the current one. @param isStandby passes its server by, with and without TLS */
  leave(endpoint: Endpoint, isStandby: boolean): void {
    if (this.current !== endpoint) return;
    const following = [...this.#endpoints.slice(this.#index + 1), ...this.#endpoints.slice(0, this.#index)];
    const { host, port } = endpoint;
    const next = following.find((each) => !isStandby || each.host !== host || each.port !== port) ?? endpoint;
    this.#index = this.#endpoints.indexOf(next);
  }
}

function tlsModes(target: PostgresTarget): readonly (ConnectionOptions | false)[] {
  const files = {
    ...(target.sslRootCert === undefined ? {} : { ca: pem("sslrootcert", target.sslRootCert) }),
    ...(target.sslCert === undefined ? {} : { cert: pem("sslcert", target.sslCert) }),
    ...(target.sslKey === undefined ? {} : { key: pem("sslkey", target.sslKey) }),
  };
  const unverified = { ...files, rejectUnauthorized: false };
  const anyName = { ...files, rejectUnauthorized: true, checkServerIdentity: () => undefined };
  switch (target.sslMode) {
    case "disable":
      return [false];
    case "allow":
      return [false, unverified];
    case "prefer":
      return [unverified, false];
    case "require":
      // A named authority must be checked.
      return [target.sslRootCert === undefined ? unverified : anyName];
    case "verify-ca":
      return [anyName];
    case "verify-full":
      return [{ ...files, rejectUnauthorized: true }];
  }
}

function pem(parameter: string, file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw new Error(`database.url: cannot read ${parameter}=${file}`, { cause: error });
  }
}
