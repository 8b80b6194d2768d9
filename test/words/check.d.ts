/** Of `check.js`, which Node.js runs before anything is built. */

export interface Finding {
  readonly line: number;
  readonly column: number;
  readonly message: string;
}

export function findingsIn(text: string, ext: string): Promise<readonly Finding[]>;

type Counts = Readonly<Record<string, number>>;

export function differences(found: ReadonlyMap<string, readonly Finding[]>, baseline: Counts): readonly string[];

export function shrunk(found: ReadonlyMap<string, readonly Finding[]>, baseline: Counts): Counts;
