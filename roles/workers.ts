import { Heartbeat } from "../src/core/operations/heartbeat.ts";
import type { Role } from "../src/model/roles.ts";
import type { ProcessName } from "../src/ports/operationsStore.ts";
import type { Service } from "../src/ports/runtime.ts";
import { REPLICA } from "../src/runtime/log.ts";
import { systemClock, systemTimer } from "../src/time/clock.ts";
import type { RoleContext, RoleParts, Wakes } from "./context.ts";
import { pollerRole } from "./poller.ts";
import { relayRole } from "./relay.ts";
import { retentionRole } from "./retention.ts";

/** The roles that work in one database: the whole installation, or a cell of it. */

/** @param roles those of the process; the others of it are not made here */
export async function workerRoles(context: RoleContext, roles: ReadonlySet<Role>): Promise<readonly RoleParts[]> {
  const parts: RoleParts[] = [];
  if (roles.has("poller")) parts.push(await pollerRole(context));
  if (roles.has("capture")) {
    // Its libraries patch the file system module, so only this role loads them.
    const { captureRole } = await import("./capture.ts");
    parts.push(await captureRole(context));
  }
  if (roles.has("relay")) parts.push(relayRole(context));
  if (roles.has("retention")) parts.push(retentionRole(context));
  return parts;
}

/** Notes in the database that this process is alive, and what it counted. */
export function heartbeatOf(
  { control, tally, fleet, log }: Pick<RoleContext, "control" | "tally" | "fleet" | "log">,
  { version, roles, routes }: Pick<ProcessName, "version" | "roles" | "routes">,
): Service {
  return new Heartbeat({
    store: control.operations,
    process: { name: REPLICA, version, roles, routes },
    tally,
    onBeat(others) {
      fleet.others = others;
    },
    clock: systemClock,
    timer: systemTimer,
    log,
  });
}

/** Wakes that do nothing until roles set theirs. */
export function newWakes(pollIntervalMs: number): Wakes {
  return {
    relay: () => {},
    relayed: () => {},
    poller: () => {},
    hasPoller: false,
    pollerIntervalMs: () => pollIntervalMs,
  };
}
