import { destinationKindOf, sourceKindOf } from "../../adapters/kinds.ts";
import { checkInboundAuth, credentialHeadersOf, signsMembers } from "../../adapters/sources/http/kind.ts";
import { hasUnknownPlaceholder, topicParts } from "../../core/delivery/template.ts";
import { CORRELATION_HEADER } from "../../core/receipt/attributes.ts";
import type { ConfigProblem } from "../../model/errors.ts";
import { isOwnPath } from "../../model/httpOperations.ts";
import { isCredentialHeader } from "../../model/text.ts";
import { mayMatch } from "../../model/topicPattern.ts";
import type { Report, When } from "../../ports/kinds.ts";
import { basePath, withLeadingSlash } from "../derive.ts";
import type { KeyPath } from "../keyPath.ts";
import { didYouMean } from "../kinds.ts";
import { MAX_RETRY_WAIT_MS } from "../schema/destinations.ts";
import { MAX_INITIAL_DELAY_MS, MAX_TIME_TO_LIVE_MS } from "../schema/sources.ts";
import type { Config, DeclaredConfig, DestinationConfig } from "../types.ts";
import type { Rules } from "./rules.ts";

/** Rules of the sections `destinations` and `routes`. @param names of all destinations, also of faulty entries */
export function checkDestinations(config: DeclaredConfig, names: readonly string[], rules: Rules): void {
  for (const [name, destination] of Object.entries(config.destinations)) {
    const base = ["destinations", name];
    destinationKindOf(destination).check(destination, (keys, rule) => rules.when(base, keys, rule));
    if (destinationKindOf(destination).hasHeaderTemplates)
      rules.when(base, ["headers"], (report) => checkHeaderTemplates(destination.headers, report));
    if ("batch" in destination)
      rules.when(base, ["batch", "cloudEvents"], (report) => {
        if (destination.batch === undefined || destination.cloudEvents?.mode !== "binary") return;
        report.error(
          "batch",
          "cannot carry binary events, whose attributes are headers: set cloudEvents.mode: structured",
        );
      });
    checkLimits(base, destination, config, rules);
    if (!("timeoutMs" in destination)) continue;
    const { timeoutMs } = destination;
    rules.when(base, ["timeoutMs"], () =>
      rules.when(["outbox"], ["claimTimeoutMs"], (report) => {
        if (timeoutMs < config.outbox.claimTimeoutMs) return;
        const message = `is ${config.outbox.claimTimeoutMs} and should be larger than destinations.${name}.timeoutMs (${timeoutMs}): a claim must outlast the slowest publish`;
        report.warning("claimTimeoutMs", message);
      }),
    );
  }
  for (const [index, route] of config.routes.entries()) checkRoute(["routes", index], route, names, rules);
}

/** What the destinations of a list have, each for itself. */
const TARGET_KEYS = ["transform", "routingKeyTemplate", "routingKeyMissingFieldDefault", "onExhausted"] as const;

function checkRoute(base: KeyPath, route: DeclaredConfig["routes"][number], names: readonly string[], rules: Rules) {
  // What was refused may be anything.
  if (typeof route !== "object" || route === null) return;
  const { destination, destinations } = route;
  rules.when(base, ["destination", "destinations"], (report) => {
    if (destination !== undefined && destinations !== undefined)
      report.error("destinations", "cannot be combined with destination: remove one of the two");
    else if (destination === undefined && destinations === undefined)
      report.error("destination", "is required: name a destination, or list several under destinations");
  });
  checkName(base, "destination", destination, names, rules);
  if (!Array.isArray(destinations)) return;
  for (const key of TARGET_KEYS) {
    if (route[key] === undefined) continue;
    rules.when(base, [key], (report) => report.error(key, "belongs in the entries of destinations: move it there"));
  }
  const seen = new Set<string>();
  for (const [n, entry] of destinations.entries()) {
    const at = [...base, "destinations", n];
    const name = entry?.name;
    checkName(at, "name", name, names, rules);
    if (seen.has(name))
      rules.when(at, ["name"], (report) => report.error("name", `names ${name} a second time: remove one of the two`));
    seen.add(name);
  }
}

function checkName(base: KeyPath, key: string, name: string | undefined, names: readonly string[], rules: Rules): void {
  if (name === undefined || names.includes(name)) return;
  rules.when(base, [key], (report) => {
    const known = names.length === 0 ? "there are none" : `there are ${names.join(", ")}`;
    report.error(key, `names no destination: ${known}; found ${JSON.stringify(name)}${didYouMean(name, names)}`);
  });
}

function checkHeaderTemplates(headers: DestinationConfig["headers"], report: Report): void {
  const unknown = Object.keys(headers).filter((name) => hasUnknownPlaceholder(headers[name] ?? ""));
  if (unknown.length === 0) return;
  const permitted = "{{ topic }}, {{ key }}, {{ aggregateType }}, {{ headers.<name> }}, {{ payload.<field> }}";
  // The value may be a credential.
  const message = `the value of ${unknown.map((name) => JSON.stringify(name)).join(", ")} has an unknown placeholder and is sent unchanged; there are ${permitted}`;
  report.warning("headers", message);
}

/** Rules of the keys that every kind has. */
function checkLimits(base: KeyPath, destination: DestinationConfig, config: DeclaredConfig, rules: Rules): void {
  const { concurrency, rateLimit, retry, circuitBreaker } = destination;
  if (concurrency !== undefined) {
    rules.when(base, ["concurrency"], (report) =>
      rules.when(["outbox"], ["concurrency"], () => {
        const most = config.outbox.concurrency;
        if (concurrency <= most) return;
        report.warning("concurrency", `is ${concurrency} and limited by outbox.concurrency (${most}): lower it`);
      }),
    );
  }
  if (rateLimit !== undefined) rules.when(base, ["rateLimit"], (report) => checkRate(rateLimit, report));
  if (retry !== undefined) rules.when(base, ["retry"], (report) => checkRetry(retry, report));
  if (circuitBreaker === undefined) return;
  rules.when(base, ["circuitBreaker"], (report) => {
    const { openMs, maxOpenMs } = circuitBreaker;
    if (maxOpenMs >= openMs) return;
    const message = `is ${maxOpenMs} and must be at least openMs (${openMs}): the wait between probes grows from openMs to maxOpenMs`;
    report.error("circuitBreaker.maxOpenMs", message);
  });
}

function checkRate(rateLimit: NonNullable<DestinationConfig["rateLimit"]>, report: Report): void {
  const { perSecond, burst } = rateLimit;
  const least = Math.ceil(perSecond);
  if (burst === undefined || burst >= least) return;
  const message = `is ${burst} and must be at least ${least}, which is perSecond (${perSecond}) rounded up: raise it, or remove it for the default of ${least}`;
  report.error("rateLimit.burst", message);
}

function checkRetry(retry: NonNullable<DestinationConfig["retry"]>, report: Report): void {
  for (const key of ["baseDelayMs", "factor", "maxDelayMs"] as const) {
    if (retry.schedule === undefined || retry[key] === undefined) continue;
    report.error(`retry.${key}`, "cannot be combined with schedule, which sets every wait: remove one of the two");
  }
  for (const [index, ms] of (retry.schedule ?? []).entries()) {
    if (ms <= MAX_RETRY_WAIT_MS) continue;
    report.error("retry.schedule", `item ${index} is longer than 7d, the longest wait`);
  }
}

type Source = DeclaredConfig["sources"][string];

export function checkSources(config: DeclaredConfig, rules: Rules): void {
  for (const [name, source] of Object.entries(config.sources)) {
    const base = ["sources", name];
    checkTopic(base, source, rules);
    checkFilter([...base, "filter"], source.filter, rules);
    const when: When = (keys, rule) => rules.when(base, keys, rule);
    when(["initialDelay"], (report) => {
      if ((source.initialDelay ?? 0) <= MAX_INITIAL_DELAY_MS) return;
      report.error("initialDelay", "is longer than 365d, the longest delay");
    });
    when(["timeToLive", "initialDelay"], (report) => checkTimeToLive(source, report));
    rules.when(["inbox"], ["credentialHeaders"], () =>
      checkAttributeHeaders(source, config.inbox.credentialHeaders, when),
    );
    if (source.kind === "http") {
      checkInboundAuth("auth.", source.auth, when);
      when([...KEY_PLACES, "cloudEvents", "auth", "batch"], (report) => {
        if (source.batch.path !== undefined && signsMembers(source.auth))
          report.error("batch.path", "cannot be set with this provider, which signs no items of a list: remove it");
        if (KEY_PLACES.some((key) => source[key] !== undefined)) return;
        if (source.cloudEvents === true || source.auth?.kind === "provider") return;
        report.error(
          "idempotencyKeyPath",
          "is required without idempotencyKeyHeader, idempotencyKeyExpression, auth.provider and cloudEvents: true",
        );
      });
    } else sourceKindOf(source).check(source, when);
  }
  checkPaths(config, rules);
  checkRouted(config, rules);
}

/** Rows with a topic that no route matches are dead at once. */
function checkRouted(config: DeclaredConfig, rules: Rules): void {
  rules.when([], ["routes", "inbox.relay.enabled"], () => {
    const patterns = config.routes.map(({ topicPattern }) => topicPattern);
    if (patterns.length === 0 || !config.inbox.relay.enabled) return;
    for (const [name, source] of Object.entries(config.sources)) {
      rules.when(["sources", name], ["consumption", "topic"], (report) => {
        if (source.consumption !== "push") return;
        // The topic is trimmed, and its event type may be empty.
        const parts = topicParts(source.topic, name).map((part) => part.trim());
        if (patterns.some((pattern) => mayMatch(pattern, parts))) return;
        const message = `is ${JSON.stringify(source.topic)}, which no route can match: every row would be dead at once; the patterns of routes are ${patterns.slice(0, MAX_NAMES).join(", ")}`;
        report.warning("topic", message);
      });
    }
  });
}

const KEY_PLACES = ["idempotencyKeyPath", "idempotencyKeyHeader", "idempotencyKeyExpression"] as const;

function checkTimeToLive({ timeToLive, initialDelay = 0 }: Source, report: Report): void {
  if (timeToLive === undefined) return;
  if (timeToLive > MAX_TIME_TO_LIVE_MS) report.error("timeToLive", "is longer than 365d, the longest life");
  else if (timeToLive === 0) report.error("timeToLive", "must be longer than 0: every message would be dead");
  else if (timeToLive <= initialDelay) {
    report.error("timeToLive", "must be longer than initialDelay: messages would be dead before they are due");
  }
}

const ATTRIBUTE_HEADERS = [
  "idempotencyKeyHeader",
  "eventTypeHeader",
  "aggregateIdHeader",
  "scheduledAtHeader",
  "deliverAtHeader",
  "expiresAtHeader",
] as const;

/** Attributes are read from stored headers, which credentials and the correlation id are not among. */
function checkAttributeHeaders(source: Source, credentials: readonly string[], when: When): void {
  for (const key of ATTRIBUTE_HEADERS) {
    when([key, "auth"], (report) => {
      const name = source[key]?.toLowerCase();
      if (name === undefined) return;
      const own = source.kind === "http" ? credentialHeadersOf(source.auth) : [];
      const isCredential =
        isCredentialHeader(name) || [...own, ...credentials].some((each) => each.toLowerCase() === name);
      const quoted = JSON.stringify(source[key]);
      if (isCredential)
        report.error(key, `is ${quoted}, which carries credentials and so is never stored: name another header`);
      else if (name === CORRELATION_HEADER.toLowerCase())
        report.error(key, `is ${quoted}, which is stored as the correlation id and not as a header: name another one`);
    });
  }
}

const TYPE_PLACES = ["eventTypePath", "eventTypeHeader", "eventTypeExpression"] as const;

/** A push source must be able to render a topic. */
function checkTopic(base: KeyPath, source: Source, rules: Rules): void {
  rules.when(base, ["consumption", "topic", ...TYPE_PLACES, "eventTypeFromHeader", "cloudEvents", "auth"], (report) => {
    if (source.consumption !== "push") return;
    if (source.topic.trim() === "") {
      report.error("topic", "must not be blank on a push source: it is the outbox topic of its messages");
      return;
    }
    const usesEventType = topicParts(source.topic, "").length > 1;
    if (!usesEventType) return;
    if (TYPE_PLACES.some((key) => source[key] !== undefined)) return;
    if (source.cloudEvents === true) return;
    if (source.kind === "http" && source.auth?.kind === "provider") return;
    if (source.kind === "http") {
      report.error("eventTypePath", `is required by the topic ${JSON.stringify(source.topic)} of a push source`);
    } else if (!source.eventTypeFromHeader) {
      const message = `the topic ${JSON.stringify(source.topic)} of a push source needs eventTypePath, or eventTypeFromHeader: true`;
      report.error("eventTypePath", message);
    }
  });
}

const CONDITIONS = ["equals", "in", "matches", "exists"] as const;

function checkFilter(base: KeyPath, filter: Source["filter"], rules: Rules): void {
  for (const list of ["require", "exclude"] as const) {
    for (const [index, rule] of (filter?.[list] ?? []).entries()) {
      rules.when([...base, list, index], [""], (report) => {
        const given = CONDITIONS.filter((key) => rule[key] !== undefined);
        if (given.length !== 1) {
          const count = given.length === 0 ? "none" : given.join(" and ");
          report.error("", `expected exactly one of ${CONDITIONS.join(", ")}; found ${count}`);
        } else if (rule.exists === false) {
          const other = list === "require" ? "exclude" : "require";
          report.error("exists", `must not be false: put the rule with exists: true under filter.${other} instead`);
        }
      });
    }
  }
}

/** Every HTTP source has its own path, which the service does not serve itself. */
function checkPaths(config: DeclaredConfig, rules: Rules): void {
  const owners = new Map<string, string>();
  rules.when(["inbox"], ["basePath"], (report) => checkRoutable("basePath", config.inbox.basePath, report));
  for (const [name, source] of Object.entries(config.sources)) {
    if (source.kind !== "http") continue;
    rules.when(["sources", name], ["path"], (report) => {
      checkRoutable("path", source.path, report);
      const own = withLeadingSlash(source.path);
      const owner = owners.get(own);
      if (owner === undefined) owners.set(own, name);
      else report.error("path", `is the path of sources.${owner} too: ${JSON.stringify(source.path)}`);
      rules.when(["inbox"], ["basePath", "pull.basePath", "pull.enabled"], () => {
        const full = (basePath(config.inbox.basePath) + own).replace(/\/+$/, "") || "/";
        const { enabled, basePath: pullBase } = config.inbox.pull;
        if (!isOwnPath(full, enabled ? basePath(pullBase) : undefined)) return;
        report.error("path", `gives ${full} with inbox.basePath, which is a path of the service itself`);
      });
    });
  }
}

function checkRoutable(key: string, path: string, report: Report): void {
  if (/[?#]/.test(path)) report.error(key, `must not contain ? or #, which end a path; found ${JSON.stringify(path)}`);
}

/**
 * Names the HTTP sources that accept every caller: permitted (spec, "Authentication"), so no warning.
 *
 * @returns one notice for all of them; undefined when each source has `auth`
 */
export function openSourcesNotice(config: Pick<Config, "sources">): ConfigProblem | undefined {
  const open = Object.entries(config.sources).flatMap(([name, source]) =>
    source.kind === "http" && source.auth === undefined ? [name] : [],
  );
  if (open.length === 0) return undefined;
  const names =
    open.length > MAX_NAMES
      ? `${open.slice(0, MAX_NAMES).join(", ")} and ${open.length - MAX_NAMES} more`
      : open.join(", ");
  const message = `without auth, anybody who reaches the data port can send messages to ${names}: set sources.<name>.auth, unless only trusted callers reach it`;
  return { path: "sources", message };
}

const MAX_NAMES = 20;
