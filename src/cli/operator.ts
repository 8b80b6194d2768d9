import { hostname, userInfo } from "node:os";

/** Who runs the command, such as `ada@ops-1`. A container's user may have no name. */
export function operator(): string {
  let user: string;
  try {
    user = userInfo().username;
  } catch {
    user = `uid ${process.getuid?.() ?? "unknown"}`;
  }
  return `${user}@${hostname()}`;
}
