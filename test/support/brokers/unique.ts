import { randomBytes } from "node:crypto";

/** A name that nobody else uses: the prefix and twelve hexadecimal digits, valid as name of a queue, stream, subject, topic or group. */
export function unique(prefix: string): string {
  return `${prefix}-${randomBytes(6).toString("hex")}`;
}
