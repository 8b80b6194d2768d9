const DEFAULT_PORT = 9092;
/** Stands for the colons of an IPv6 address, at which the client would cut host and port apart. */
const COLON = "_";

/**
 * Splits `bootstrapServers`.
 *
 * @param bootstrapServers comma-separated `host:port`; the port is 9092 where it is missing, an IPv6 address stands in brackets
 * @returns addresses as the client takes them, for {@link hostOf} to undo
 */
export function brokerAddresses(bootstrapServers: string): readonly string[] {
  return bootstrapServers
    .split(",")
    .map((address) => address.trim())
    .filter((address) => address !== "")
    .map((address) => {
      const [, host = address, port = String(DEFAULT_PORT)] = /^(\[[^\]]*\]|[^:]*)(?::(.*))?$/.exec(address) ?? [];
      return `${host.replaceAll(":", COLON)}:${port}`;
    });
}

/** The host to connect to, of an address of {@link brokerAddresses} or as a broker has announced it. */
export function hostOf(host: string): string {
  const literal = /^\[(.*)\]$/.exec(host)?.[1];
  return literal === undefined ? host : literal.replaceAll(COLON, ":");
}
