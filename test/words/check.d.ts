/** Of `check.js`, which Node.js runs before anything is built. */

export interface Finding {
  readonly line: number;
  readonly column: number;
  readonly message: string;
}

export function findingsIn(text: string, ext: string): Promise<readonly Finding[]>;

/** What stays against the style, by file. */
export type Exceptions = Readonly<Record<string, { readonly phrases: number; readonly why: string }>>;

export function differences(found: ReadonlyMap<string, readonly Finding[]>, exceptions: Exceptions): readonly string[];
