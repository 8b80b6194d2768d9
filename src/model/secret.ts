import { inspect } from "node:util";

/**
 * A credential that cannot be printed by accident: every way of turning it into text gives `Secret(***)`, or
 * `Secret(empty)` for an empty one (spec, "Value formats"). Only `reveal()` gives the value.
 */
export class Secret {
  readonly #value: string;

  constructor(value: string) {
    this.#value = value;
  }

  /** The value itself, for the one call that needs it. */
  reveal(): string {
    return this.#value;
  }

  toString(): string {
    return this.#value === "" ? "Secret(empty)" : "Secret(***)";
  }

  toJSON(): string {
    return this.toString();
  }

  [inspect.custom](): string {
    return this.toString();
  }
}
