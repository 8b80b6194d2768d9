import { createRequire } from "node:module";

/**
 * A module inside kafkajs that its package does not export.
 *
 * @param name path below its `src`
 * @returns undefined in a version that is built differently
 */
export function kafkajsModule<T>(name: string): T | undefined {
  try {
    return createRequire(import.meta.url)(`kafkajs/src/${name}`);
  } catch {
    return undefined;
  }
}
