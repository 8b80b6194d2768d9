import type { Report } from "../../ports/kinds.ts";
import { formatKeyPath, type KeyPath } from "../keyPath.ts";
import type { Finding } from "../shape.ts";

/**
 * Runs rules over several keys, in a configuration whose single values may have problems: a rule runs only when none of
 * the keys that it reads has one. So every rule sees values of the right type, and all findings come at once.
 */
export class Rules {
  readonly errors: Finding[] = [];
  readonly warnings: Finding[] = [];
  readonly #broken: readonly KeyPath[];

  constructor(broken: readonly KeyPath[]) {
    this.#broken = broken;
  }

  /**
   * Runs a rule when the keys it reads are in order.
   *
   * @param base key path of the block
   * @param keys every key of the block that the rule reads, such as `capture.mode`
   */
  when(base: KeyPath, keys: readonly string[], rule: (report: Report) => void): void {
    if (keys.some((key) => this.#isBroken(at(base, key)))) return;
    rule({
      error: (key, message) => this.errors.push({ path: at(base, key), message }),
      warning: (key, message) => this.warnings.push({ path: at(base, key), message }),
    });
  }

  #isBroken(path: KeyPath): boolean {
    return this.#broken.some((broken) => {
      const length = Math.min(broken.length, path.length);
      return formatKeyPath(broken.slice(0, length)) === formatKeyPath(path.slice(0, length));
    });
  }
}

function at(base: KeyPath, key: string): KeyPath {
  if (key === "") return base;
  return [...base, ...key.split(".").map((step) => (/^\d+$/.test(step) ? Number(step) : step))];
}
