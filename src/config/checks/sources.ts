import { sourceKindOf } from "../../adapters/kinds.ts";
import { checkInboundAuth } from "../../adapters/sources/http/kind.ts";
import { parseTopicTemplate } from "../../core/delivery/template.ts";
import { isOwnPath } from "../../model/routes.ts";
import type { Report, When } from "../../ports/kinds.ts";
import { basePath, withLeadingSlash } from "../derive.ts";
import type { KeyPath } from "../keyPath.ts";
import type { DeclaredConfig } from "../types.ts";
import type { Rules } from "./rules.ts";

type Source = DeclaredConfig["sources"][string];
type HttpSource = Extract<Source, { readonly kind: "http" }>;

/** Rules of the section `sources`. */
export function checkSources(config: DeclaredConfig, rules: Rules): void {
  for (const [name, source] of Object.entries(config.sources)) {
    const base = ["sources", name];
    checkTopic(base, source, rules);
    checkFilter([...base, "filter"], source.filter, rules);
    checkKind(base, source, rules);
  }
  checkPaths(config, rules);
}

function checkKind(base: KeyPath, source: Source, rules: Rules): void {
  const when: When = (keys, rule) => rules.when(base, keys, rule);
  if (source.kind === "http") checkInboundAuth("auth.", source.auth, when);
  else sourceKindOf(source).check(source, when);
}

/** A push source must be able to render a topic. */
function checkTopic(base: KeyPath, source: Source, rules: Rules): void {
  rules.when(base, ["consumption", "topic", "eventTypePath", "eventTypeFromHeader"], (report) => {
    if (source.consumption !== "push") return;
    if (source.topic.trim() === "") {
      report.error("topic", "must not be blank on a push source: it is the outbox topic of its messages");
      return;
    }
    if (!parseTopicTemplate(source.topic).usesEventType || source.eventTypePath !== undefined) return;
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

/** Every HTTP source has a path of its own, which is none of the service's. */
function checkPaths(config: DeclaredConfig, rules: Rules): void {
  const owners = new Map<string, string>();
  const http = Object.entries(config.sources).filter(
    (entry): entry is [string, HttpSource] => entry[1].kind === "http",
  );
  rules.when(["inbox"], ["basePath"], (report) => checkRoutable("basePath", config.inbox.basePath, report));
  for (const [name, source] of http) {
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
