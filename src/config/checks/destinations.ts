import type { KeyPath } from "../keyPath.ts";
import { didYouMean } from "../nearest.ts";
import { syntaxError } from "../syntax.ts";
import type { DeclaredConfig, DestinationConfig } from "../types.ts";
import { checkAmqpUri, checkNatsCredentials, checkSasl, checkServers } from "./brokers.ts";
import type { Report, Rules } from "./rules.ts";

/**
 * Rules of the sections `destinations` and `routes`.
 *
 * @param names of all destinations, those too whose entry has problems
 */
export function checkDestinations(config: DeclaredConfig, names: readonly string[], rules: Rules): void {
  for (const [name, destination] of Object.entries(config.destinations)) {
    const base = ["destinations", name];
    checkKind(base, destination, rules);
    if (destination.kind === "rabbitmq") continue;
    rules.when(base, ["timeoutMs"], () =>
      rules.when(["outbox"], ["claimTimeoutMs"], (report) => {
        if (destination.timeoutMs < config.outbox.claimTimeoutMs) return;
        const message = `is ${config.outbox.claimTimeoutMs} and should be larger than destinations.${name}.timeoutMs (${destination.timeoutMs}): a claim must outlast the slowest publish`;
        report.warning("claimTimeoutMs", message);
      }),
    );
  }
  for (const [index, route] of config.routes.entries()) {
    rules.when(["routes", index], ["destination"], (report) => {
      if (names.includes(route.destination)) return;
      const known = names.length === 0 ? "there are none" : `there are ${names.join(", ")}`;
      const message = `names no destination: ${known}; found ${JSON.stringify(route.destination)}${didYouMean(route.destination, names)}`;
      report.error("destination", message);
    });
  }
}

function checkKind(base: KeyPath, destination: DestinationConfig, rules: Rules): void {
  switch (destination.kind) {
    case "http":
      rules.when(base, ["headers"], (report) => checkHttpHeaders(destination.headers, report));
      break;
    case "rabbitmq":
      rules.when(base, ["url"], (report) => checkAmqpUri("url", destination.url, report));
      break;
    case "kafka":
      checkSasl(base, destination, rules);
      rules.when(base, ["bootstrapServers"], (report) =>
        checkServers("bootstrapServers", destination.bootstrapServers, report),
      );
      break;
    case "nats":
      checkNatsCredentials(base, destination, rules);
      rules.when(base, ["servers"], (report) => checkServers("servers", destination.servers, report));
      break;
    default:
      destination satisfies never;
  }
}

function checkHttpHeaders(headers: Readonly<Record<string, string>>, report: Report): void {
  for (const [name, value] of Object.entries(headers)) {
    const wrong = syntaxError("headerName", name);
    if (wrong !== undefined) report.error("headers", `${JSON.stringify(name)} is no header name: ${wrong}`);
    // The value may be a credential: it is not shown.
    if (/[^\t\x20-\x7e\x80-\xff]/.test(value)) {
      report.error("headers", `the value of ${JSON.stringify(name)} holds a character that no HTTP header can carry`);
    }
  }
}
