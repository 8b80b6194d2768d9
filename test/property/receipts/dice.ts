/** The smallest generator there is, which touches no global object: those are slow to reach in a test, and this is asked millions of times. */
function xorshift(seed: number): () => number {
  let state = seed | 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state >>> 0;
  };
}

const POOL_LENGTH = 65_536;

/** Chances from a seed, cheap enough for many thousand messages. */
export class Dice {
  readonly #next: () => number;
  /** Random bytes; messages get any part of them. */
  readonly #bytes: Buffer;
  /** Characters that a header's value may have: a tab now and then, what is visible in ASCII, any byte above it. */
  readonly #headerText: string;
  readonly #digits: string;

  constructor(seed: number) {
    this.#next = xorshift(seed);
    this.#bytes = Buffer.from(Array.from({ length: POOL_LENGTH }, () => this.below(256)));
    this.#digits = Array.from({ length: POOL_LENGTH }, () => this.below(10)).join("");
    const headerBytes = this.#bytes.map((byte) =>
      byte < 0x20 || byte === 0x7f ? this.pick([0x09, 0x20, 0x21]) : byte,
    );
    this.#headerText = Buffer.from(headerBytes).toString("latin1");
  }

  /** A whole number from 0 to below `limit`. */
  below(limit: number): number {
    return this.#next() % limit;
  }

  chance(probability: number): boolean {
    return this.#next() < probability * 2 ** 32;
  }

  pick<T>(choices: readonly T[]): T {
    return choices[this.below(choices.length)] as T;
  }

  bytes(length: number): Buffer {
    const from = this.below(POOL_LENGTH - length);
    return this.#bytes.subarray(from, from + length);
  }

  digits(length: number): string {
    const from = this.below(POOL_LENGTH - length);
    return this.#digits.slice(from, from + length);
  }

  headerText(length: number): string {
    const from = this.below(POOL_LENGTH - length);
    return this.#headerText.slice(from, from + length);
  }
}
