import { checkInboundAuth } from "../../adapters/sources/http/kind.ts";
import type { Report } from "../../ports/kinds.ts";
import { DATABASES } from "../databases.ts";
import type { DeclaredConfig } from "../types.ts";
import { readJdbcUrl } from "./database.ts";
import type { Rules } from "./rules.ts";

/** Rules of `outbox.capture`, `admin`, `inbox.pull` and `retention`: what must be there when they are switched on. */
export function checkSwitches(config: DeclaredConfig, rules: Rules): void {
  checkCapture(config, rules);
  const { admin, inbox, retention } = config;
  rules.when(["admin"], ["enabled", "auth", "insecure"], (report) => {
    if (!admin.enabled || admin.auth !== undefined || admin.insecure) return;
    report.error(
      "auth",
      "is required when admin.enabled is true (for a local test, set admin.insecure to true instead)",
    );
  });
  rules.when(["admin"], ["enabled", "auth", "insecure"], (report) => {
    if (!admin.enabled || admin.auth === undefined || !admin.insecure) return;
    report.warning(
      "auth",
      "has no effect: admin.insecure is true, so anybody can use the admin routes; remove one of the two",
    );
  });
  checkInboundAuth("auth.", admin.auth, (keys, rule) => rules.when(["admin"], keys, rule));
  checkInboundAuth("auth.", inbox.pull.auth, (keys, rule) => rules.when(["inbox", "pull"], keys, rule));
  rules.when(["inbox", "pull"], ["enabled", "auth"], (report) => {
    if (!inbox.pull.enabled || inbox.pull.auth !== undefined) return;
    report.warning("auth", "is not set: anybody who reaches the data port can take messages out of the inbox");
  });
  for (const table of ["outbox", "inbox"] as const) {
    const base = ["retention", table];
    rules.when([], ["retention.enabled", `retention.${table}`], () => {
      if (!retention.enabled) return;
      rules.when(base, [""], (report) => checkRetention(retention[table], report));
    });
  }
}

function checkRetention(block: DeclaredConfig["retention"]["outbox" | "inbox"], report: Report): void {
  if (block.policy === "AGE" && block.maxAge === undefined) {
    report.error("maxAge", "is required by the policy AGE: a duration such as 30d");
  }
  if (block.policy === "COUNT" && !("maxCount" in block)) {
    report.error("maxCount", "is required by the policy COUNT: the rows to keep of each state");
  }
  if (block.cleanupInterval === 0) report.error("cleanupInterval", "must be longer than 0");
}

function checkCapture(config: DeclaredConfig, rules: Rules): void {
  const { capture } = config.outbox;
  const base = ["outbox", "capture"];
  rules.when([], ["database.type", "outbox.capture.mode"], (report) => {
    const { type } = config.database;
    if (capture.mode === "polling" || capture.mode === DATABASES[type].captureMode) return;
    const fitting = Object.entries(DATABASES).find(([, { captureMode }]) => captureMode === capture.mode)?.[0];
    const message = `${capture.mode} works with ${fitting} only, and database.type is ${type}`;
    report.error("outbox.capture.mode", message);
  });
  rules.when(base, ["enabled", "mode"], (report) => {
    if (!capture.enabled || capture.mode !== "polling") return;
    report.error(
      "mode",
      "must be postgres-logical or sqlserver-cdc when outbox.capture.enabled is true; found polling",
    );
  });
  rules.when(base, ["enabled", "stateDirectory"], (report) => {
    if (!capture.enabled || capture.stateDirectory.trim() !== "") return;
    report.error(
      "stateDirectory",
      "is required when outbox.capture.enabled is true: a directory that outlives the process",
    );
  });
  rules.when([], ["database.url", "database.type", "outbox.capture"], (report) => {
    if (!capture.enabled || capture.connection.hostname !== undefined) return;
    const parsed = readJdbcUrl(config.database);
    if (typeof parsed === "string" || parsed.target.type !== "postgresql" || parsed.target.hosts.length < 2) return;
    const message = "is required because database.url names several hosts: name the one to capture from";
    report.error("outbox.capture.connection.hostname", message);
  });
}
