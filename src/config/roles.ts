import type { ConfigProblem } from "../model/errors.ts";
import { ROLES, type Role } from "../model/roles.ts";
import { didYouMean } from "./kinds.ts";
import type { Config } from "./types.ts";

/** The switch of each role that has one: its key path and its value. */
const SWITCHES: Readonly<Partial<Record<Role, { readonly key: string; readonly isOn: (config: Config) => boolean }>>> =
  {
    relay: { key: "inbox.relay.enabled", isOn: (config) => config.inbox.relay.enabled },
    retention: { key: "retention.enabled", isOn: (config) => config.retention.enabled },
    capture: { key: "outbox.capture.enabled", isOn: (config) => config.outbox.capture.enabled },
    admin: { key: "admin.enabled", isOn: (config) => config.admin.enabled },
  };

/** The roles of a process that names none: every role that the configuration switches on. */
export function rolesEnabled(config: Config): Role[] {
  return ROLES.filter((role) => SWITCHES[role]?.isOn(config) ?? true);
}

/**
 * Checks that the configuration lets a process run these roles (design, "Roles and switches").
 *
 * @param named whether the command line names them, rather than the configuration
 * @returns what is wrong; empty when nothing is
 */
export function checkRoles(config: Config, roles: readonly Role[], named: boolean): ConfigProblem[] {
  const problems: ConfigProblem[] = [];
  for (const role of named ? roles : []) {
    const toggle = SWITCHES[role];
    if (toggle === undefined || toggle.isOn(config)) continue;
    const message = `is false, but the role ${role} is named on the command line: set it to true, or leave the role out`;
    problems.push({ path: toggle.key, message });
  }
  if (roles.includes("capture") && !roles.includes("poller")) {
    const message = "the role capture needs poller in the same process, which it wakes: run svc capture poller";
    problems.push({ path: "capture", message });
  }
  return problems;
}

/** Reads a role from the command line. @throws Error that lists the roles */
export function parseRole(text: string): Role {
  const role = ROLES.find((known) => known === text);
  if (role !== undefined) return role;
  throw new Error(
    `there is no role ${JSON.stringify(text)}: the roles are ${ROLES.join(", ")}${didYouMean(text, ROLES)}`,
  );
}
